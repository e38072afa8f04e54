//! A port between clients and a server.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Takes connections for a server; ends when dropped.
pub struct Tap {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Tap {
    /// `connected` gets the client's and the server's end of each connection. It must not block.
    pub fn new(
        server: SocketAddr,
        stopping: Arc<AtomicBool>,
        connected: impl Fn(&TcpStream, &TcpStream) + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let thread = thread::spawn({
            let stopping = stopping.clone();
            move || {
                for client in listener.incoming() {
                    if stopping.load(Ordering::SeqCst) {
                        return;
                    }
                    let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else {
                        continue;
                    };
                    connected(&client, &server);
                }
            }
        });
        Self {
            address,
            stopping,
            thread: Some(thread),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
