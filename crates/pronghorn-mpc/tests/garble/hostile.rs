//! Tables, labels, messages and inputs of a hostile peer.

use super::*;

/// Whatever the tables hold, evaluation ends, and with outputs that are reduced.
#[test]
fn corrupted_tables_and_labels_do_not_panic() {
    for modulus in [two(20), prime(1_032_193)] {
        let each = Activation {
            pool: 2,
            rectifier: Rectifier::Relu,
            ..Activation::RELU
        };
        let circuit = each.circuit(modulus, -99, 99, modulus).unwrap();
        let mut batch = activation(circuit, modulus, -99, 99, TILE + 3);
        let (tables, _) = batch.garble(SimdLevel::detect());
        let honest = batch.evaluate(SimdLevel::detect(), &tables, MESSAGE_BYTES);
        let random = &mut Random(1);
        for round in 0..20 {
            let mut bad = tables.clone();
            match round {
                0 => bad.fill(0),
                1 => bad.fill(0xff),
                _ => {
                    let at = random.next() as usize % bad.len();
                    bad[at] ^= 1 << (round % 8);
                }
            }
            for level in SimdLevel::available() {
                let outputs = batch.evaluate(level, &bad, MESSAGE_BYTES);
                assert!(outputs.iter().all(|&x| modulus.add(x, 0) == x));
            }
        }
        batch.labels[0] = batch.labels[1];
        assert!(batch.evaluate(SimdLevel::detect(), &tables, MESSAGE_BYTES) != honest);
        batch.labels.fill(Block::ZERO);
        batch.evaluate(SimdLevel::detect(), &tables, MESSAGE_BYTES);
    }
}

#[test]
fn messages_out_of_turn_or_shape_are_refused() {
    let circuit = Activation::RELU.circuit(two(20), -99, 99, two(20)).unwrap();
    let batch = activation(circuit, two(20), -99, 99, 3);
    let (tables, _) = batch.garble(SimdLevel::detect());

    let mut evaluator = batch.evaluator();
    let length = |found, most| Err(GarbleError::MessageLength { found, most });
    assert_eq!(evaluator.max_incoming(), tables.len());
    assert_eq!(evaluator.receive(&[]), length(0, tables.len()));
    let long = [&tables[..], &[0]].concat();
    assert_eq!(
        evaluator.receive(&long),
        length(tables.len() + 1, tables.len())
    );
    let out_of_turn = |error| matches!(error, Err(GarbleError::OutOfTurn { .. }));
    assert!(out_of_turn(evaluator.send(&mut vec![])));
    evaluator.receive(&tables[..tables.len() - 1]).unwrap();
    assert_eq!(
        (evaluator.want(), evaluator.max_incoming()),
        (Want::Receive, 1)
    );
    assert!(out_of_turn(evaluator.into_outputs().map(|_| ())));

    let mut evaluator = batch.evaluator();
    evaluator.receive(&tables).unwrap();
    assert_eq!(
        (evaluator.want(), evaluator.max_incoming()),
        (Want::Done, 0)
    );
    assert_eq!(evaluator.receive(&[0]), length(1, 0));

    let mut garbler = batch.garbler();
    assert!(out_of_turn(garbler.receive(&[0])));
    assert_eq!(garbler.max_incoming(), 0);
    garbler.send(&mut vec![]).unwrap();
    assert_eq!(garbler.want(), Want::Done);
    assert!(out_of_turn(garbler.send(&mut vec![])));
    assert!(out_of_turn(batch.garbler().into_outputs().map(|_| ())));
}

#[test]
fn inputs_of_the_wrong_length_are_refused() {
    let circuit = Arc::new(Activation::RELU.circuit(two(20), -99, 99, two(20)).unwrap());
    let bits = circuit.labelled_bits();
    let garbler = |instances, values, labels| {
        Garbler::new(
            circuit.clone(),
            instances,
            &Delta::new(Block::ONES),
            Block::ZERO,
            Zeroizing::new(vec![0; values]),
            Zeroizing::new(vec![Block::ZERO; labels]),
        )
        .map(|_| ())
    };
    let evaluator = |instances, values, labels| {
        Evaluator::new(
            circuit.clone(),
            instances,
            Zeroizing::new(vec![0; values]),
            Zeroizing::new(vec![Block::ZERO; labels]),
        )
        .map(|_| ())
    };
    let count = |result| matches!(result, Err(GarbleError::Count { .. }));
    let instances = |result| matches!(result, Err(GarbleError::Instances { .. }));
    assert!(garbler(2, 2, 2 * bits).is_ok() && evaluator(2, 2, 2 * bits).is_ok());
    assert!(count(garbler(2, 1, 2 * bits)) && count(evaluator(2, 1, 2 * bits)));
    assert!(count(garbler(2, 2, bits)) && count(evaluator(2, 2, bits)));
    assert!(instances(garbler(0, 0, 0)) && instances(evaluator(0, 0, 0)));
    assert!(count(garbler(usize::MAX, 2, 2)) && count(evaluator(usize::MAX, 2, 2)));
    let empty = Arc::new(Builder::new().finish());
    let labels = Zeroizing::new(vec![]);
    let huge = Evaluator::new(empty, usize::MAX, Zeroizing::new(vec![]), labels).map(|_| ());
    assert!(huge.is_ok() || instances(huge));
}

/// The delta of OTs that have stopped is zero.
#[test]
fn an_offset_without_a_secret_is_refused() {
    let circuit = Activation::RELU.circuit(two(8), -9, 9, two(8)).unwrap();
    let mut batch = activation(circuit, two(8), -9, 9, 1);
    batch.delta = Delta::new(Block::ZERO);
    let garbler = Garbler::new(
        batch.circuit.clone(),
        1,
        &batch.delta,
        batch.start,
        Zeroizing::new(batch.garbler.clone()),
        Zeroizing::new(batch.zero_labels.clone()),
    );
    assert_eq!(garbler.map(|_| ()).unwrap_err(), GarbleError::Offset);
    let (delta, mut labels) = (&batch.delta, batch.labels.clone());
    let flips = vec![0; labels.len().div_ceil(8)];
    let refused = Err(GarbleError::Offset);
    assert_eq!(
        correct(delta, &batch.zero_labels, &flips, &mut labels),
        refused
    );
    assert_eq!(
        encode(&batch.circuit, delta, &batch.evaluator, 1, &mut labels),
        refused
    );
}
