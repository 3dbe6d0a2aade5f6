//! The life of the real program: signals, drain, flush, reload.

use crate::support::Backend;
use crate::support::process::Process;

#[tokio::test]
async fn try_it() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    println!("{}", process.log());
    println!("{}", process.page("/metrics").await.1);
    println!("{}", process.peak_memory());
}
