//! Linear layers on slots, on one core: Gazelle's Tables VIII and X, method by method.
//!
//! `cargo run --release -p pronghorn-engine --example slot_layers`

use pronghorn_engine::bench::slot::{METHODS, run};
use pronghorn_graph::geometry::{ConvGeometry, Window};

/// Bits of the plaintext values, as in the paper.
const BITS: u32 = 20;
const ROUNDS: usize = 5;

fn main() {
    let conv = |size: usize, inputs, outputs, kernel: usize, stride| ConvGeometry {
        in_channels: inputs,
        out_channels: outputs,
        input: [size; 2],
        window: Window {
            stride: [stride; 2],
            padding: [kernel / 2; 4],
            ..Window::plain([kernel; 2])
        },
        groups: 1,
    };
    let dense = |inputs, outputs| ConvGeometry::dense(inputs, outputs);
    let matrices = [(2048, 1), (1024, 128), (1024, 16), (128, 16)].map(|(i, o)| dense(i, o));
    let convolutions = [
        conv(28, 1, 5, 5, 2),
        conv(16, 128, 128, 1, 1),
        conv(32, 32, 32, 3, 1),
        conv(16, 128, 128, 3, 1),
    ];
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    for (name, method) in METHODS {
        if !chosen.is_empty() && !chosen.iter().any(|other| other == name) {
            continue;
        }
        let convolves = name.ends_with("rotations");
        let none: &[ConvGeometry] = &[];
        let (first, second): (&[_], &[_]) = match name {
            "chosen" => (&matrices, &convolutions),
            _ if convolves => (none, &convolutions),
            _ => (&matrices, none),
        };
        for geometry in first.iter().chain(second) {
            let found = match run(geometry, method, BITS, ROUNDS) {
                Ok(found) => found,
                Err(error) => {
                    println!("{name}: {error}");
                    continue;
                }
            };
            let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
            println!(
                "{name} {:?} {} -> {}: evaluate {:.3} (predicted {:.3}), encrypt {:.3}, expand {:.3}, hide {:.3}, decrypt {:.3}, setup {:.1} ms; \
                 rotations {} + {}, products {}; up {} down {} keys {} weights {}\n  {}",
                geometry.input,
                geometry.in_channels,
                geometry.out_channels,
                milliseconds(found.evaluate),
                found.predicted / 1e3,
                milliseconds(found.encrypt),
                milliseconds(found.expand),
                milliseconds(found.hide),
                milliseconds(found.decrypt),
                milliseconds(found.setup),
                found.input_rotations,
                found.output_rotations,
                found.products,
                found.up,
                found.down,
                found.keys,
                found.weights,
                found.described
            );
        }
    }
}
