//! A backend that counts concurrent requests, and responds to a request when the test tells it to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use crate::support::within;

/// Name of the header with the number of a request.
const NUMBER: &str = "x-number: ";

pub struct Holding {
    pub address: SocketAddr,
    held: Arc<Held>,
    came: mpsc::UnboundedReceiver<usize>,
}

#[derive(Default)]
struct Held {
    /// Requests that wait for their response, by number.
    now: Mutex<BTreeMap<usize, oneshot::Sender<()>>>,
    most: Mutex<usize>,
}

impl Holding {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let held = Arc::<Held>::default();
        let (sender, came) = mpsc::unbounded_channel();
        let all = Arc::clone(&held);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&all), sender.clone()));
            }
        });
        Self { address, held, came }
    }

    /// Waits for the next request and returns its number.
    pub async fn next(&mut self) -> usize {
        within("a request", self.came.recv()).await.unwrap()
    }

    /// Returns whether another request has arrived.
    pub fn has_another(&mut self) -> bool {
        self.came.try_recv().is_ok()
    }

    /// Responds to the request with this number.
    pub fn answer(&self, number: usize) {
        self.held.take(number).unwrap().send(()).unwrap();
    }

    /// Stops counting the request with this number, because its client is about to disconnect.
    pub fn forget(&self, number: usize) {
        drop(self.held.take(number).unwrap());
    }

    /// Returns the highest number of concurrent requests so far.
    pub fn most(&self) -> usize {
        *self.held.most.lock().unwrap()
    }
}

impl Held {
    fn add(&self, number: usize) -> oneshot::Receiver<()> {
        let (sender, answer) = oneshot::channel();
        let mut now = self.now.lock().unwrap();
        now.insert(number, sender);
        let mut most = self.most.lock().unwrap();
        *most = now.len().max(*most);
        answer
    }

    fn take(&self, number: usize) -> Option<oneshot::Sender<()>> {
        self.now.lock().unwrap().remove(&number)
    }
}

async fn serve(mut stream: TcpStream, held: Arc<Held>, came: mpsc::UnboundedSender<usize>) {
    let mut read = Vec::new();
    loop {
        let Some((number, length)) = head(&mut stream, &mut read).await else {
            return;
        };
        while read.len() < length {
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        }
        read.drain(..length);
        let answer = held.add(number);
        came.send(number).ok();
        if answer.await.is_err() {
            // The client has disconnected, so the proxy closes this connection and sends nothing else.
            stream.read_buf(&mut read).await.ok();
            return;
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

/// Reads the headers, and returns the request's number and the length of its body.
async fn head(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<(usize, usize)> {
    let end = loop {
        if let Some(at) = read.windows(4).position(|end| end == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(read.drain(..end).collect()).unwrap();
    let head = head.to_ascii_lowercase();
    let value = |name: &str| head.split(name).nth(1)?.split("\r\n").next()?.parse().ok();
    Some((value(NUMBER)?, value("content-length: ")?))
}
