//! Tables of smooth functions in plans: their cost and their bytes.

use crate::common::value;
use pronghorn_graph::fixed::{ActivationOp, Table};
use pronghorn_plan::{share_form::ShareForm, steps::activation::chain::Stage};

/// Bytes of a value's lookup that the quantiser expects, beside those of its circuit.
#[test]
fn the_cost_of_tables_is_known() {
    let form = ShareForm::exact(20);
    let spec = value(&[1], -(1 << 15), (1 << 15) - 1);
    let bytes = |table: &Table| {
        let stage = Stage::of(&[ActivationOp::Table(table.clone())]).expect("it is one stage");
        let circuit = stage.circuit((1, 0), (&spec, &form), &ShareForm::exact(28));
        let circuit = circuit.expect("the numbers go together");
        circuit.table_bytes(32) as f64 / 32.0
    };
    for (count, drop, fine) in [
        (128, 9, 7),
        (32, 11, 9),
        (256, 8, 7),
        (64, 8, 0),
        (512, 7, 0),
    ] {
        let first = -count / 2;
        let x = |place: i32| f64::from(first + place) * f64::from(1 << drop) / 4096.0;
        let bump = |x: f64| (-4096.0 * x.abs() / (1.0 + x.abs().exp())).round() as i32;
        let values: Vec<i32> = (0..=count).map(|place| bump(x(place))).collect();
        let rises = values.windows(2).map(|ends| ends[1] - ends[0]);
        let mut table = Table {
            rectified: false,
            drop,
            first,
            entries: values[..count as usize].into(),
            fine,
            rises: if fine == 0 {
                Vec::new()
            } else {
                rises.collect()
            },
        };
        let (expected, found) = (table.circuit_bytes(28) as f64, bytes(&table));
        // The comparison with the window stays.
        table.entries.fill(1);
        table.rises.fill(0);
        let ratio = (found - bytes(&table)) / expected;
        assert!(
            (0.67..1.5).contains(&ratio),
            "{count} {drop} {fine}: {ratio}"
        );
    }
}

/// Plans with constants keep their bytes.
#[test]
fn tables_of_constants_are_encoded_as_before() {
    let constants = Table {
        rectified: true,
        drop: 3,
        first: -2,
        entries: vec![5, -6],
        fine: 0,
        rises: Vec::new(),
    };
    let pieces = Table {
        fine: 2,
        rises: vec![1, 9],
        ..constants.clone()
    };
    let bytes = |table: &Table| postcard::to_stdvec(table).expect("a table serialises");
    let fields = (true, 3u32, -2i32, vec![5i32, -6]);
    let before = postcard::to_stdvec(&fields).expect("its fields serialise");
    assert_eq!(bytes(&constants), before);
    for table in [constants, pieces] {
        assert_eq!(
            postcard::from_bytes::<Table>(&bytes(&table)).as_ref(),
            Ok(&table)
        );
    }
}
