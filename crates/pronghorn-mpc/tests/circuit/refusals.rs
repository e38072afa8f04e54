//! Activations that are refused.

use super::*;

#[test]
fn impossible_activations_are_refused() {
    let two = |bits| Modulus::power_of_two(bits).unwrap();
    let range = |result: Result<Circuit, CircuitError>| {
        matches!(result.unwrap_err(), CircuitError::Range { .. })
    };
    let parameter = |result: Result<Circuit, CircuitError>| {
        matches!(result.unwrap_err(), CircuitError::Parameter { .. })
    };
    let relu = Activation::RELU;
    assert!(range(relu.circuit(two(8), -129, 0, two(8))));
    assert!(range(relu.circuit(two(8), 3, 2, two(8))));
    assert!(range(relu.circuit(two(16), 0, 1000, two(8))));
    assert!(range(relu.circuit(
        Modulus::prime(31).unwrap(),
        -16,
        0,
        two(8)
    )));
    assert!(parameter(relu.circuit(two(64), i64::MIN, 0, two(64))));
    let pool = |pool| Activation { pool, ..relu };
    assert!(parameter(pool(0).circuit(two(8), 0, 1, two(8))));
    assert!(parameter(requantised(Rectifier::None, 32, 0, 1).circuit(
        two(8),
        0,
        1,
        two(8)
    )));
    assert!(parameter(requantised(Rectifier::None, 1, 2, 1).circuit(
        two(8),
        0,
        1,
        two(8)
    )));
    let leaky = |slope, shift| Activation {
        rectifier: Rectifier::Leaky { slope, shift },
        ..relu
    };
    assert!(parameter(leaky(-1, 0).circuit(two(8), 0, 1, two(8))));
    assert!(parameter(leaky(1, 31).circuit(two(8), 0, 1, two(8))));
    assert!(parameter(argmax(two(8), 0, 1, 0)));
    assert!(range(sign(two(8), 0, 128)));
    assert!(Modulus::power_of_two(65).is_err() && Modulus::prime(15).is_err());
}
