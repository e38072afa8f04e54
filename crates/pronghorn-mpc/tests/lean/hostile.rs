//! Messages of a peer that does not follow.

use std::sync::Arc;

use pronghorn_mpc::{
    circuit::{Modulus, Rectifier},
    lean::{Evaluation, Input, LeanError, Party, Program, deal},
};

use super::common::{Random, activation};

fn program(output: Modulus) -> Arc<Program> {
    let input = Input {
        bits: 9,
        prime: None,
        guard: 0,
        error: 0,
        low: -200,
        high: 200,
    };
    let activation = activation(1, Rectifier::Relu, Some((3, 0, 15)));
    Arc::new(Program::activation(&activation, input, output).unwrap())
}

fn server(program: &Arc<Program>, elements: usize) -> Evaluation {
    let mut random = Random(9);
    let [(sent, _), (_, received)] = deal(program, elements, || random.block());
    let input = vec![5; elements];
    let mut server = Evaluation::new(program.clone(), Party::Server, &[&input], received);
    server.provide(sent);
    server
}

#[test]
fn wrong_lengths_are_refused() {
    let program = program(Modulus::power_of_two(8).unwrap());
    for elements in [1, 8, 70] {
        let mut server = server(&program, elements);
        let refused = |server: &mut Evaluation, level, expected| {
            for found in [0, expected - 1, expected + 1] {
                let length = LeanError::Length {
                    level,
                    found,
                    expected,
                };
                assert_eq!(server.take(&vec![0; found]), Err(length));
            }
        };
        let make = |server: &mut Evaluation| server.make(&mut Vec::new());
        for level in 0..program.levels() {
            assert!(server.output().is_err());
            let (turn, next) = (
                Err(LeanError::OutOfTurn { level }),
                Err(LeanError::OutOfTurn { level: level + 1 }),
            );
            let expected = program.bytes(level, Party::Client, elements);
            if Party::first_of(level) == Party::Server {
                assert_eq!(server.take(&vec![0; expected]), turn);
                make(&mut server).unwrap();
                assert_eq!(make(&mut server), next);
                refused(&mut server, level, expected);
                server.take(&vec![0; expected]).unwrap();
            } else {
                assert_eq!(make(&mut server), turn);
                refused(&mut server, level, expected);
                server.take(&vec![0; expected]).unwrap();
                assert_eq!(server.take(&vec![0; expected]), next);
                make(&mut server).unwrap();
            }
        }
        assert!(server.output().is_ok());
        let level = program.levels();
        assert_eq!(
            server.make(&mut Vec::new()),
            Err(LeanError::OutOfTurn { level })
        );
    }
}

#[test]
fn numbers_beyond_a_prime_are_refused() {
    let program = program(Modulus::prime(257).unwrap());
    let mut server = server(&program, 3);
    let refused = (0..program.levels()).any(|level| {
        if Party::first_of(level) == Party::Server {
            server.make(&mut Vec::new()).unwrap();
        }
        let expected = program.bytes(level, Party::Client, 3);
        let refused = server.take(&vec![0xff; expected]) == Err(LeanError::Residue { level });
        if Party::first_of(level) == Party::Client && !refused {
            server.make(&mut Vec::new()).unwrap();
        }
        refused
    });
    assert!(refused);
}
