//! Parameters for a workload.

use super::*;

/// The table in the documentation of `workload`, line by line.
#[test]
fn the_table_of_workloads_is_true() {
    let source = include_str!("../../src/bfv/workload.rs");
    let (lines, documented) = (table(), |line: &String| source.contains(line));
    assert!(
        lines.iter().all(documented),
        "the table should be:\n{}",
        lines.join("\n")
    );
}

fn table() -> Vec<String> {
    let kinds = [
        ("products, no rotations", false, 0, 0),
        ("outputs rotated: 16 rotations summed", false, 16, 0),
        ("outputs rotated and summed 6 times", false, 0, 6),
        ("inputs rotated", true, 0, 0),
        ("inputs rotated, then 16 outputs", true, 16, 0),
    ];
    let mut lines = Vec::new();
    for (what, input_rotations, output_rotations, doublings) in kinds {
        for t_bits in [17, 18, 20] {
            let workload = Workload {
                t_bits,
                products: 1 << 10,
                input_rotations,
                output_rotations,
                doublings,
            };
            let cell = |n| match Parameters::<u64>::for_workload(n, &workload, 1) {
                Ok(parameters) => {
                    assert!(parameters.security().is_some());
                    format!(
                        "{}, {:.1} left",
                        chain(&parameters),
                        workload.spare(&parameters, 1)
                    )
                }
                Err(_) => "no".to_owned(),
            };
            lines.push(format!(
                "//! | {what} | {t_bits} | {} | {} |",
                cell(4096),
                cell(8192)
            ));
        }
    }
    lines
}

/// Primes by their bits.
fn chain(parameters: &Parameters<u64>) -> String {
    let bits: Vec<_> = parameters
        .ring()
        .basis()
        .primes()
        .map(|q| q.bits().to_string())
        .collect();
    let (chain, special) = bits.split_at(parameters.limbs());
    let chain = chain.join("+");
    match parameters.digit_bits() {
        Some(bits) => format!("{chain}, digits of {bits}"),
        None => format!("{chain}, special {}", special.join("+")),
    }
}

#[test]
fn other_degrees_have_no_workload() {
    let workload = Workload {
        t_bits: 17,
        products: 1,
        input_rotations: false,
        output_rotations: 0,
        doublings: 0,
    };
    assert!(matches!(
        Parameters::<u64>::for_workload(2048, &workload, 1),
        Err(ParameterError::Workload { n: 2048 })
    ));
    assert!(Parameters::<u32>::for_workload(4096, &workload, 1).is_err());
}
