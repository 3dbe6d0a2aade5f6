//! Tests a thousand clients in front of a backend with a concurrency limit of eight.

use tokio::net::TcpStream;

use super::backend::Holding;
use super::{LONG, limit, until_gauges};
use crate::aborts::rig::Rig;
use crate::support::{Raw, Setup};

const CLIENTS: usize = 1_000;
const PLACES: usize = 8;

/// Returns a request with a body, like every API call.
fn request(number: usize) -> String {
    let body = r#"{"model":"m","stream":true,"messages":[]}"#;
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-Number: {number}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Sends the requests one after the other, so that their order is known. The first ones get permits, and the others are
/// queued.
async fn gather(rig: &Rig, backend: &mut Holding) -> Vec<Option<Raw<TcpStream>>> {
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = rig.proxy.client().await;
        client.write(request(number)).await;
        clients.push(Some(client));
        let inside = PLACES.min(number + 1);
        until_gauges(&rig.observer, wide(number + 1 - inside, inside)).await;
        if number < PLACES {
            assert_eq!(backend.next().await, number);
        }
    }
    clients
}

fn wide(queued: usize, inside: usize) -> (u64, u64) {
    (queued as u64, inside as u64)
}

#[tokio::test]
async fn admits_a_thousand_clients_eight_at_a_time_in_order_of_arrival() {
    let mut backend = Holding::start().await;
    let mut setup = Setup::to(backend.address);
    setup.admission = limit(PLACES, CLIENTS, LONG);
    let rig = Rig::unexported(setup).await;
    let mut clients = gather(&rig, &mut backend).await;
    assert!(!backend.has_another(), "a queued request was forwarded");

    // Every seventh waiting client disconnects, and its request leaves the queue at once.
    let leaves = |number: usize| number >= PLACES && number.is_multiple_of(7);
    let mut queued = CLIENTS - PLACES;
    for number in (0..CLIENTS).filter(|number| leaves(*number)) {
        clients[number] = None;
        queued -= 1;
        until_gauges(&rig.observer, wide(queued, PLACES)).await;
    }

    // Each of the other requests gets its response, or its client disconnects during the request. Each time, the next
    // request in the queue gets a permit.
    let staying = (0..CLIENTS).filter(|number| !leaves(*number));
    let mut coming = staying.clone().skip(PLACES);
    for number in staying {
        let mut client = clients[number].take().unwrap();
        if number.is_multiple_of(5) {
            backend.forget(number);
            drop(client);
        } else {
            backend.answer(number);
            assert!(client.read_head().await.starts_with("HTTP/1.1 200 "));
        }
        if let Some(next) = coming.next() {
            assert_eq!(backend.next().await, next);
            queued -= 1;
            until_gauges(&rig.observer, wide(queued, PLACES)).await;
        }
    }
    assert_eq!(queued, 0);
    until_gauges(&rig.observer, (0, 0)).await;
    assert_eq!(backend.most(), PLACES);

    // The number of permits must still be exactly eight.
    let mut again = Vec::new();
    for number in 0..=PLACES {
        let mut client = rig.proxy.client().await;
        client.write(request(number)).await;
        again.push(client);
    }
    for _ in 0..PLACES {
        backend.next().await;
    }
    until_gauges(&rig.observer, wide(1, PLACES)).await;
    assert!(!backend.has_another());
    assert_eq!(backend.most(), PLACES);
    drop(again);
    until_gauges(&rig.observer, (0, 0)).await;
}
