//! Seconds of each party for one batch of CryptoNets (nGraph-HE2, appendix A.1) at trust level `encrypted`, with made-up
//! weights: `cargo run --release --example encrypted_bench [threads] [eager] [server rounds]`. With `server`, one client's messages
//! are answered so many times, which is the one to profile.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use pronghorn_engine::{ClientRun, EngineError, Machine, ServerModel, ServerRun, Want};
use pronghorn_graph::graph::{Graph, Tensor};
use pronghorn_plan::{BuildOptions, TrustLevel, build, encrypted::schedule::Passes};

const NETWORK: &str = r#"{"name":"CryptoNets","nodes":[
    {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[1,28,28]},
    {"name":"conv","op":{"kind":"conv","window":{"kernel":[5,5],"stride":[2,2],"dilation":[1,1],
        "padding":[1,1,1,1]},"groups":1,"weight":"conv","bias":null},"inputs":[0],"shape":[5,13,13]},
    {"name":"square","op":{"kind":"square"},"inputs":[1],"shape":[5,13,13]},
    {"name":"flat","op":{"kind":"reshape"},"inputs":[2],"shape":[845]},
    {"name":"fc1","op":{"kind":"dense","weight":"fc1","bias":null},"inputs":[3],"shape":[100]},
    {"name":"square2","op":{"kind":"square"},"inputs":[4],"shape":[100]},
    {"name":"fc2","op":{"kind":"dense","weight":"fc2","bias":null},"inputs":[5],"shape":[10]}],"output":6}"#;

/// Numbers in (-1, 1).
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let threads = arguments.first().map_or(Ok(1), |count| count.parse())?;
    let lazy_rescaling = !arguments.contains(&"eager".to_owned());
    let tensor = |shape: &[usize], scale: f32, seed| Tensor {
        shape: shape.to_vec(),
        data: numbers(shape.iter().product(), seed)
            .iter()
            .map(|x| x * scale)
            .collect(),
    };
    let weights = BTreeMap::from([
        ("conv".to_owned(), tensor(&[5, 1, 5, 5], 0.35, 1)),
        ("fc1".to_owned(), tensor(&[100, 845], 0.15, 2)),
        ("fc2".to_owned(), tensor(&[10, 100], 0.3, 3)),
    ]);
    let graph = Graph::from_json(NETWORK, weights)?;
    let samples = numbers(784 * 64, 9).iter().map(|x| x.abs()).collect();
    let options = BuildOptions {
        trust: Some(TrustLevel::Encrypted),
        samples: Some(samples),
        passes: Passes {
            lazy_rescaling,
            ..Passes::default()
        },
        ..BuildOptions::default()
    };
    let built = build(&graph, &options)?;
    println!("{}", built.text());
    let model = Arc::new(ServerModel::new(&built)?);
    let batch = model.plan().max_batch();
    let inputs: Vec<f32> = numbers(784 * batch, 5).iter().map(|x| x.abs()).collect();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;
    if let Some(at) = arguments.iter().position(|argument| argument == "server") {
        let rounds = arguments.get(at + 1).map_or(Ok(5), |count| count.parse())?;
        let messages = pool.install(|| record(&model, &inputs, batch))?;
        for _ in 0..rounds {
            let server = pool.install(|| replay(&model, &messages, batch))?;
            let rate = batch as f64 / server.as_secs_f64();
            println!("{threads} threads, {batch} images: server {server:.3?} ({rate:.0} images/s)");
        }
        return Ok(());
    }
    for _ in 0..3 {
        let (client, server) = pool.install(|| run(&model, &inputs, batch))?;
        let rate = |time: Duration| batch as f64 / time.as_secs_f64();
        println!(
            "{threads} threads, {batch} images: server {server:.3?} ({:.0} images/s), client {client:.3?} ({:.0} images/s)",
            rate(server),
            rate(client)
        );
    }
    Ok(())
}

/// Time of client and server for one batch.
fn run(
    model: &Arc<ServerModel>,
    inputs: &[f32],
    batch: usize,
) -> Result<(Duration, Duration), EngineError> {
    let (mut client_time, mut server_time) = (Duration::ZERO, Duration::ZERO);
    let started = Instant::now();
    let mut client = ClientRun::new(model.plan().clone(), inputs, batch)?;
    client_time += started.elapsed();
    let mut server = ServerRun::new(model.clone(), batch)?;
    let mut message = Vec::new();
    while client.want() != Want::Done {
        message.clear();
        let started = Instant::now();
        let to_server = client.want() == Want::Send;
        if to_server {
            client.send(&mut message)?;
        } else {
            server.send(&mut message)?;
        }
        let sent = Instant::now();
        if to_server {
            server.receive(&message)?;
            client_time += sent - started;
            server_time += sent.elapsed();
        } else {
            client.receive(&message)?;
            server_time += sent - started;
            client_time += sent.elapsed();
        }
    }
    Ok((client_time, server_time))
}

/// All messages of a client.
fn record(
    model: &Arc<ServerModel>,
    inputs: &[f32],
    batch: usize,
) -> Result<Vec<Vec<u8>>, EngineError> {
    let mut client = ClientRun::new(model.plan().clone(), inputs, batch)?;
    let mut messages = Vec::new();
    while client.want() == Want::Send {
        let mut message = Vec::new();
        client.send(&mut message)?;
        messages.push(message);
    }
    Ok(messages)
}

/// Time of the server for the recorded messages of a client.
fn replay(
    model: &Arc<ServerModel>,
    messages: &[Vec<u8>],
    batch: usize,
) -> Result<Duration, EngineError> {
    let mut server = ServerRun::new(model.clone(), batch)?;
    let mut answer = Vec::new();
    let started = Instant::now();
    for message in messages {
        server.receive(message)?;
    }
    while server.want() == Want::Send {
        answer.clear();
        server.send(&mut answer)?;
    }
    Ok(started.elapsed())
}
