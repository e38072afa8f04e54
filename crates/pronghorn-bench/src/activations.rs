//! Activations on shares, both parties in one process connected by memory, and what they are made
//! of.

use std::sync::Arc;

use pronghorn_mpc::{
    circuit::{Activation, Modulus, Rectifier},
    ot::OtParameters,
};
use pronghorn_ring::random::{Prg, Seed};

use crate::parties::{Phase, clocked, exchange};
use pronghorn_engine::{
    EngineError,
    exchange::Exchange,
    garbled::{
        Circuits, GarbledClient, GarbledServer, Group, Indices, Layout, OnlineClient,
        OnlineProductClient, OnlineProductServer, OnlineServer, Output, PrepareClient,
        PrepareProductClient, PrepareProductServer, PrepareServer, ProductClient, ProductServer,
        Products,
    },
    machine::{Machine, StepMachine},
    ots::{ReceiverOts, SenderOts, SetupClient, SetupServer},
    share::{Batch, Share},
};

/// Bits of the values, as in Gazelle.
pub const BITS: u32 = 20;

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// `x^2`.
    Square,
    /// `max(x, 0)`.
    Relu,
    /// The largest of four.
    MaxPool,
}

/// A function of some outputs: made ahead and then used, and at once.
#[derive(Default)]
pub struct Run {
    /// What needs no input of the client's.
    pub offline: Phase,
    /// The rest.
    pub online: Phase,
    /// Both in one.
    pub at_once: Phase,
}

/// The OTs of a connection.
pub struct Connection {
    client: ReceiverOts,
    server: SenderOts,
    /// What they cost.
    pub setup: Phase,
}

impl Connection {
    /// Sets up OTs with the default parameters.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn new() -> Result<Self, EngineError> {
        let (client, server) = (ReceiverOts::default(), SenderOts::default());
        let parameters = OtParameters::default();
        let mut setup = Phase::default();
        exchange(
            &mut SetupClient::new(parameters, client.clone()),
            &mut SetupServer::new(parameters, server.clone()),
            &mut setup,
        )?;
        Ok(Self {
            client,
            server,
            setup,
        })
    }

    /// Computes `outputs` values of a function of random ones, on rayon's current threads.
    ///
    /// # Errors
    /// When there are too many, or a result is wrong.
    pub fn run(&self, function: Function, outputs: usize) -> Result<Run, EngineError> {
        let pool = match function {
            Function::MaxPool => 4,
            Function::Square | Function::Relu => 1,
        };
        let (values, client, server) = shares(pool * outputs)?;
        let squares = Products::squares("square".to_owned(), outputs, 1, BITS);
        let layout = Arc::new(layout(function, pool, outputs)?);
        let runs = match function {
            Function::Square => self.squares(&squares, client, server)?,
            Function::Relu | Function::MaxPool => self.garbled(&layout, client, server)?,
        };
        let expected: Vec<i64> = values
            .chunks(pool)
            .map(|values| match function {
                Function::Square => values[0].wrapping_mul(values[0]),
                Function::Relu => values[0].max(0),
                Function::MaxPool => values.iter().copied().max().unwrap_or(0),
            })
            .collect();
        for shares in &runs.shares {
            check(&expected, shares)?;
        }
        Ok(runs.run)
    }

    fn squares(
        &self,
        squares: &Products,
        client: Share,
        server: Share,
    ) -> Result<Shared, EngineError> {
        let ots = || (self.client.clone(), self.server.clone());
        let (of, share) = (|| squares.clone(), client.clone());
        measure(
            (
                || PrepareProductClient::new(of(), ots().0),
                || PrepareProductServer::new(of(), server.clone(), ots().1),
            ),
            (
                |made: Exchange<PrepareProductClient>| {
                    OnlineProductClient::new(made.into_prepared()?, share)
                },
                |made: Exchange<PrepareProductServer>| {
                    Ok(OnlineProductServer::new(made.into_prepared()?))
                },
            ),
            (
                || ProductClient::new(of(), client, ots().0),
                || ProductServer::new(of(), server.clone(), ots().1),
            ),
        )
    }

    fn garbled(
        &self,
        layout: &Arc<Layout>,
        client: Share,
        server: Share,
    ) -> Result<Shared, EngineError> {
        let ots = || (self.client.clone(), self.server.clone());
        let (of, share) = (|| layout.clone(), client.clone());
        measure(
            (
                || PrepareClient::new(of(), ots().0),
                || PrepareServer::new(of(), server.clone(), ots().1),
            ),
            (
                |made: Exchange<PrepareClient>| OnlineClient::new(made.into_prepared()?, share),
                |made: Exchange<PrepareServer>| Ok(OnlineServer::new(made.into_prepared()?)),
            ),
            (
                || GarbledClient::new(of(), client, ots().0),
                || GarbledServer::new(of(), server.clone(), ots().1),
            ),
        )
    }
}

/// How a machine is made, timed like its work.
trait Make<T>: FnOnce() -> Result<T, EngineError> {}

impl<T, F: FnOnce() -> Result<T, EngineError>> Make<T> for F {}

/// Runs client and server of a preparation, of what uses it, and of both in one.
fn measure<
    PC: Machine<Error = EngineError>,
    PS: Machine<Error = EngineError>,
    OC: StepMachine,
    OS: StepMachine,
    C: StepMachine,
    S: StepMachine,
>(
    prepare: (impl Make<PC>, impl Make<PS>),
    online: (
        impl FnOnce(PC) -> Result<OC, EngineError>,
        impl FnOnce(PS) -> Result<OS, EngineError>,
    ),
    at_once: (impl Make<C>, impl Make<S>),
) -> Result<Shared, EngineError> {
    let mut run = Run::default();
    let phase = &mut run.offline;
    let mut client = clocked(&mut phase.client, prepare.0)?;
    let mut server = clocked(&mut phase.server, prepare.1)?;
    exchange(&mut client, &mut server, phase)?;
    let phase = &mut run.online;
    let client = clocked(&mut phase.client, || online.0(client))?;
    let server = clocked(&mut phase.server, || online.1(server))?;
    let two_phases = step(client, server, phase)?;
    let phase = &mut run.at_once;
    let client = clocked(&mut phase.client, at_once.0)?;
    let server = clocked(&mut phase.server, at_once.1)?;
    let one_phase = step(client, server, phase)?;
    let shares = [two_phases, one_phase];
    Ok(Shared { run, shares })
}

/// A run, and the shares that both ways left.
struct Shared {
    run: Run,
    shares: [[Share; 2]; 2],
}

/// Random values, and the parties' shares of them.
fn shares(count: usize) -> Result<(Vec<i64>, Share, Share), EngineError> {
    let mut words = vec![0; 8 * count];
    let prg = Prg::new(&Seed::from_os()?, "pronghorn bench activations");
    prg.stream(0).fill(&mut words);
    let unused = u32::BITS - BITS;
    let (mut client, mut server) = (Batch::zeros(count, 1), Batch::zeros(count, 1));
    let mut values = Vec::with_capacity(count);
    let cells = client.words_mut().iter_mut().zip(server.words_mut());
    for ((client, server), bytes) in cells.zip(words.as_chunks::<8>().0) {
        let [value, mask] = [0, 4]
            .map(|at| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        let value = value >> unused;
        values.push(i64::from(value));
        *server = mask;
        *client = value.wrapping_sub(mask);
    }
    Ok((values, Share::Words(client), Share::Words(server)))
}

fn layout(function: Function, pool: usize, outputs: usize) -> Result<Layout, EngineError> {
    let activation = Activation {
        pool,
        rectifier: match function {
            Function::Relu => Rectifier::Relu,
            Function::Square | Function::MaxPool => Rectifier::None,
        },
        requantisation: None,
        table: None,
    };
    let refused = |reason| EngineError::Unsupported {
        step: "activation".to_owned(),
        reason,
    };
    let modulus = Modulus::power_of_two(BITS).map_err(|_| refused("there is no such modulus"))?;
    let (low, high) = (-modulus.largest() - 1, modulus.largest());
    let circuit = activation.circuit(modulus, low, high, modulus);
    Ok(Layout {
        step: "activation".to_owned(),
        inputs: pool * outputs,
        outputs,
        images: 1,
        circuits: Arc::new(Circuits {
            groups: vec![Group {
                circuit: Arc::new(circuit.map_err(|_| refused("there is no such circuit"))?),
                elements: Indices::All(outputs),
                sources: Indices::All(pool * outputs),
            }],
            offset: 0,
            output: Output::Shares,
        }),
    })
}

/// That shares are of what is expected.
fn check(expected: &[i64], shares: &[Share; 2]) -> Result<(), EngineError> {
    let words = shares.each_ref().map(|share| match share {
        Share::Words(words) => words.words(),
        Share::Zero => &[],
    });
    let unused = u32::BITS - BITS;
    let sums = words[0].iter().zip(words[1]);
    let opened = sums.map(|(client, server)| client.wrapping_add(*server) << unused >> unused);
    let modulo = expected.iter().map(|&x| (x as i32) << unused >> unused);
    match opened.eq(modulo) {
        true => Ok(()),
        false => Err(EngineError::Unsupported {
            step: "activation".to_owned(),
            reason: "the result is wrong",
        }),
    }
}

/// Runs a step, and leaves both shares.
fn step(
    mut client: impl StepMachine,
    mut server: impl StepMachine,
    phase: &mut Phase,
) -> Result<[Share; 2], EngineError> {
    exchange(&mut client, &mut server, phase)?;
    let [client, server] = [Box::new(client).into_made()?, Box::new(server).into_made()?];
    Ok([client.share, server.share])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_measured() {
        let connection = Connection::new().unwrap();
        assert!(connection.setup.bytes_up > 0 && connection.setup.bytes_down > 0);
        for function in [Function::Square, Function::Relu, Function::MaxPool] {
            let run = connection.run(function, 50).unwrap();
            let total = |phase: &Phase| phase.bytes_up + phase.bytes_down;
            assert!(total(&run.online) < total(&run.offline));
            assert!(total(&run.at_once) < total(&run.offline) + total(&run.online));
        }
    }
}
