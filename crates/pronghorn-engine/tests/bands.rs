//! Batches that go through their layers in bands of rows give what whole ones give: the oracle's
//! results, bit for bit, in as many bytes.

use std::collections::VecDeque;

use crate::common::{
    check, exchange_with,
    networks::{Middle, aided, around, convolutions, in_bands, options, plan},
    numbers, tensors,
};
use pronghorn_engine::{ClientRun, EngineError, Machine, ServerModel, ServerRun, Want};
use pronghorn_graph::graph::Graph;
use pronghorn_plan::{Built, Plan, StepKind, TrustLevel, bands, cost, plan::Step};

/// In words of 32 bits, in two digits and more, and in words of 64 bits; one row a band, and several.
#[test]
fn all_steps_equal_the_oracle() {
    for bits in [None, Some((11, 9)), Some((10, 14)), Some((11, 16))] {
        for (batch, band_bytes) in [(1, 1 << 10), (3, 3 << 10), (100, 100 << 10)] {
            let built = in_bands(aided(4, bits), band_bytes);
            let bands = bands::order::bands(&built.plan, batch).expect("the plan goes by bands");
            assert!(bands.len() > built.plan.steps.len());
            check(&built, &numbers(162 * batch, batch as u64), batch);
        }
    }
    // Several blocks and a part.
    let built = in_bands(aided(4, None), 1 << 20);
    assert!(bands::order::bands(&built.plan, 5000).is_some());
    check(&built, &numbers(162 * 5000, 9), 5000);
}

/// Steps that go by rows beside others that do not.
#[test]
fn every_middle_equals_the_oracle() {
    use Middle::*;
    let middles = [
        Square,
        Relu,
        LeakyRelu,
        Silu,
        MaxPool,
        PaddedMaxPool,
        AveragePool,
        Residual,
        Concat,
        Means,
        Gate,
        Takes,
    ];
    for middle in middles {
        let built = in_bands(
            plan(&around(middle), options(TrustLevel::ClientAided)),
            1 << 10,
        );
        let bands = bands::order::bands(&built.plan, 50).expect("the plan goes by bands");
        assert!(bands.len() > built.plan.steps.len(), "{}", bands.len());
        check(&built, &numbers(32 * 50, 3), 50);
    }
}

/// One party's places in the order of the messages of both.
#[derive(Default)]
struct Places {
    through: u64,
    ahead: VecDeque<u64>,
}

impl Places {
    fn pass(&mut self) {
        self.through += 1;
        while self.ahead.front() == Some(&self.through) {
            self.ahead.pop_front();
            self.through += 1;
        }
    }
}

/// Runs both to the end through two lines, each sending ahead what it can before it takes what has
/// come. How many messages each sent ahead.
fn crossed(mut parties: [&mut dyn Machine<Error = EngineError>; 2]) -> [usize; 2] {
    let mut lines: [VecDeque<(u64, Vec<u8>)>; 2] = Default::default();
    let (mut places, mut counts) = ([Places::default(), Places::default()], [0; 2]);
    let mut idle = 0;
    while parties.iter().any(|party| party.want() != Want::Done) {
        idle += 1;
        assert!(idle < 10, "neither party can go on");
        for (party, machine) in parties.iter_mut().enumerate() {
            let (mine, mut message) = (&mut places[party], Vec::new());
            if machine.want() == Want::Send {
                machine.send(&mut message).expect("it is its turn");
                lines[1 - party].push_back((mine.through, message));
                mine.pass();
                idle = 0;
                continue;
            }
            if machine.want() == Want::Done {
                continue;
            }
            machine.meanwhile().expect("it works");
            if let Some(before) = machine.ahead() {
                machine.send_ahead(&mut message).expect("it is ready");
                lines[1 - party].push_back((mine.through + before, message));
                mine.ahead.push_back(mine.through + before);
                counts[party] += 1;
                idle = 0;
            } else if let Some((place, message)) = lines[party].pop_front() {
                assert_eq!(place, mine.through, "both parties count alike");
                assert!(message.len() <= machine.max_incoming());
                machine.receive(&message).expect("it is valid");
                mine.pass();
                idle = 0;
            }
        }
    }
    counts
}

/// A client sends the band behind the one under way before that is answered. Both parties count
/// messages alike, and results equal the oracle.
#[test]
fn bands_ahead_of_their_turn_equal_the_oracle() {
    use Middle::*;
    let middles = [MaxPool, PaddedMaxPool, Residual, Concat, Gate, Takes];
    let of = |middle| plan(&around(middle), options(TrustLevel::ClientAided));
    let all = middles.map(of).into_iter();
    let chain = plan(&convolutions(), options(TrustLevel::ClientAided));
    let all = all.chain([aided(4, Some((11, 16))), chain]);
    let mut ahead = 0;
    let batch = 5;
    for built in all.map(|built| in_bands(built, 1 << 10)) {
        let elements = built.plan.input().len();
        let inputs = numbers(elements * batch, 12);
        let model = ServerModel::new(&built).expect("weights fit the plan");
        let mut client = ClientRun::new(built.plan.clone(), &inputs, batch).expect("inputs fit");
        let mut server = ServerRun::new(&model, batch).expect("the batch fits");
        let [by_client, by_server] = crossed([&mut client, &mut server]);
        ahead += by_client;
        assert_eq!(by_server, 0, "it waits for the client");
        let (integers, _) = built.plan.quantise(&inputs).expect("inputs are numbers");
        let wanted = built.oracle(&integers, batch).expect("ranges hold");
        assert_eq!(client.finish_integers().expect("the run is over"), wanted);
    }
    assert!(ahead > 40, "{ahead}");
}

/// Bands change neither bytes nor the oracle's values; a row is sent once.
#[test]
fn bytes_are_those_of_the_plan() {
    let built = in_bands(aided(4, None), 1 << 10);
    let (batch, model) = (3, ServerModel::new(&built).expect("weights fit the plan"));
    let inputs = numbers(162 * batch, 5);
    let mut client = ClientRun::new(built.plan.clone(), &inputs, batch).expect("inputs fit");
    let mut server = ServerRun::new(&model, batch).expect("the batch fits");
    let mut bytes = 0;
    exchange_with(&mut client, &mut server, |_, message| {
        bytes += message.len() as u64
    })
    .expect("an honest run succeeds");
    let total = cost::total(&built.plan, batch);
    assert_eq!(bytes, total.bytes_up + total.bytes_down);
}

/// A damaged message of any band ends the run with an error or with another result, never with a
/// panic.
#[test]
fn damage_in_a_band_is_an_error_or_another_result() {
    let built = in_bands(aided(4, None), 1 << 10);
    let (batch, model) = (2, ServerModel::new(&built).expect("weights fit the plan"));
    let inputs = numbers(162 * batch, 6);
    let (mut refused, mut count) = (0, usize::MAX);
    for damaged in 0.. {
        if damaged >= count {
            break;
        }
        let mut client = ClientRun::new(built.plan.clone(), &inputs, batch).expect("inputs fit");
        let mut server = ServerRun::new(&model, batch).expect("the batch fits");
        let found = exchange_with(&mut client, &mut server, |at, message| {
            if at == damaged {
                message.iter_mut().for_each(|byte| *byte = 0xff);
            }
        });
        match found {
            Ok(messages) => count = messages,
            Err(EngineError::Word { .. } | EngineError::Packing { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > count / 2, "{refused} of {count}");
}

/// Windows that leave rows at the bottom unread, in layers of one band beside layers of several:
/// a shortcut of 1x1 with stride 2, and a cropping pool.
#[test]
fn unread_rows_equal_the_oracle() {
    let window = |kernel: usize, stride: usize, padding: usize| {
        let (k, s, p) = (kernel, stride, padding);
        format!(
            r#""window":{{"kernel":[{k},{k}],"stride":[{s},{s}],"dilation":[1,1],"padding":[{p},{p},{p},{p}]}}"#
        )
    };
    let conv = |name: &str, window: String, input: usize, shape: &str| {
        format!(
            r#"{{"name":"{name}","op":{{"kind":"conv",{window},"groups":1,"weight":"{name}","bias":null}},"inputs":[{input}],"shape":[{shape}]}}"#
        )
    };
    let pool = format!(
        r#"{{"name":"pool","op":{{"kind":"average_pool",{},"count_include_pad":false}},"inputs":[1],"shape":[16,5,5]}}"#,
        window(2, 2, 0)
    );
    let nodes = [
        r#"{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2,11,11]}"#.to_owned(),
        conv("wide", window(3, 1, 1), 0, "16,11,11"),
        conv("shortcut", window(1, 2, 0), 1, "2,6,6"),
        conv("cropped", window(1, 3, 0), 1, "2,4,4"),
        pool,
        conv("narrow", window(2, 3, 0), 4, "1,2,2"),
        r#"{"name":"a","op":{"kind":"reshape"},"inputs":[2],"shape":[72]}"#.to_owned(),
        r#"{"name":"b","op":{"kind":"reshape"},"inputs":[3],"shape":[32]}"#.to_owned(),
        r#"{"name":"c","op":{"kind":"reshape"},"inputs":[5],"shape":[4]}"#.to_owned(),
        r#"{"name":"all","op":{"kind":"concat","axis":0},"inputs":[6,7,8],"shape":[108]}"#
            .to_owned(),
    ];
    let json = format!(
        r#"{{"name":"unread","nodes":[{}],"output":9}}"#,
        nodes.join(",")
    );
    let weights = [
        ("wide", &[16, 2, 3, 3][..]),
        ("shortcut", &[2, 16, 1, 1]),
        ("cropped", &[2, 16, 1, 1]),
        ("narrow", &[1, 16, 2, 2]),
    ];
    let graph = Graph::from_json(&json, tensors(&weights, 3)).expect("a valid graph");
    for band_bytes in [1 << 10, 3 << 20, 4 << 20, 6 << 20, 12 << 20] {
        let built = in_bands(plan(&graph, options(TrustLevel::ClientAided)), band_bytes);
        let bands = bands::order::bands(&built.plan, 3);
        assert!(bands.is_some(), "{band_bytes}");
        check(&built, &numbers(242 * 3, 8), 3);
    }
}

/// A convolution with a 1x1 kernel behind one of 3x3, before a dense layer.
fn pointwise() -> Built {
    let window = |kernel: usize, padding: usize| {
        format!(
            r#""window":{{"kernel":[{kernel},{kernel}],"stride":[1,1],"dilation":[1,1],
            "padding":[{padding},{padding},{padding},{padding}]}}"#
        )
    };
    let conv = |name: &str, window: String, input: usize, shape: &str| {
        format!(
            r#"{{"name":"{name}","op":{{"kind":"conv",{window},"groups":1,"weight":"{name}.w",
            "bias":"{name}.b"}},"inputs":[{input}],"shape":[{shape}]}}"#
        )
    };
    let nodes = [
        r#"{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2,5,5]}"#.to_owned(),
        conv("c1", window(3, 1), 0, "6,5,5"),
        r#"{"name":"r","op":{"kind":"relu"},"inputs":[1],"shape":[6,5,5]}"#.to_owned(),
        conv("c2", window(1, 0), 2, "4,5,5"),
        r#"{"name":"f","op":{"kind":"reshape"},"inputs":[3],"shape":[100]}"#.to_owned(),
        r#"{"name":"d","op":{"kind":"dense","weight":"d.w","bias":"d.b"},"inputs":[4],"shape":[5]}"#
            .to_owned(),
    ];
    let json = format!(
        r#"{{"name":"test","nodes":[{}],"output":5}}"#,
        nodes.join(",")
    );
    let sizes: [(&str, &[usize]); 6] = [
        ("c1.w", &[6, 2, 3, 3]),
        ("c1.b", &[6]),
        ("c2.w", &[4, 6, 1, 1]),
        ("c2.b", &[4]),
        ("d.w", &[5, 100]),
        ("d.b", &[5]),
    ];
    let graph = Graph::from_json(&json, tensors(&sizes, 3)).expect("it is a graph");
    plan(&graph, options(TrustLevel::ClientAided))
}

/// A plan from outside may give values other shapes of as many elements. Positions are those of the
/// layer's geometry then, and the run is the oracle's.
#[test]
fn positions_follow_from_the_geometry() {
    for shape in [
        vec![4, 5, 5],
        vec![100],
        vec![1, 10, 10],
        vec![5, 4, 5],
        vec![1, 100, 1],
    ] {
        let built = in_bands(pointwise(), 1 << 10);
        let mut changed = built.plan.plan().clone();
        let is_point = |step: &Step| matches!(&step.kind, StepKind::ClearLinear(layer) if layer.pointwise().is_some());
        let at = changed.steps.iter().position(is_point);
        let at = at.expect("there is such a layer");
        for step in &mut changed.steps[at..at + 2] {
            step.value.shape.clone_from(&shape);
        }
        let plan = Plan::from_bytes(&changed.to_bytes()).expect("its elements are as many");
        check(&Built { plan, ..built }, &numbers(50 * 3, 1), 3);
    }
}

/// The rows that a client keeps from band to band count as its memory.
#[test]
fn rows_of_several_bands_are_counted() {
    let built = in_bands(pointwise(), 1 << 10);
    let rows = 4 * 2048 * 4;
    let [banded, whole] = [1 << 10, 1 << 30]
        .map(|bytes| cost::memory(&in_bands(built.clone(), bytes).plan, 3).client);
    assert!(banded >= rows, "{banded} of {rows}");
    assert!(whole < rows, "{whole}");
}
