//! Opens a connection to each server that a configuration names: the upstreams and the OTLP collector.

use std::process::ExitCode;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::config::{Config, ExportProtocol, Proxies};
use crate::forward::{ConnectError, Protocol, Upstream, UpstreamConfig};
use tokengauge_types::error::WithCauses;
use tokengauge_types::event::{ConnectTimings, UpstreamFailure};
use tokengauge_types::label::Label;

/// Maximum time for one server, all servers at the same time. Three lost SYN packets take 7 s.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The result of all attempts.
pub(super) struct Attempts {
    /// One line per server, in the order of the configuration.
    pub lines: Vec<String>,
    pub failed: usize,
}

impl Attempts {
    /// Returns an error if a server was not reached.
    pub fn exit_code(&self) -> ExitCode {
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Connects to all servers at the same time. `proxies` are the HTTP proxies of the environment, which the proxy would use.
pub(super) async fn connect(config: &Config, proxies: &Proxies) -> Attempts {
    let mut attempts = JoinSet::new();
    for (index, (what, mut server)) in servers(config).into_iter().enumerate() {
        server.proxy = proxies.for_host(server.tls, &server.host, server.port);
        attempts.spawn(async move {
            let target = format!("{what} ({}:{})", server.host, server.port);
            let result = attempt(server).await;
            let is_ok = result.is_ok();
            let result = result.unwrap_or_else(|problem| format!("not reached: {problem}"));
            (index, format!("{target}: {result}"), is_ok)
        });
    }
    let mut results = attempts.join_all().await;
    results.sort_unstable();
    Attempts {
        failed: results.iter().filter(|(.., is_ok)| !is_ok).count(),
        lines: results.into_iter().map(|(_, line, _)| line).collect(),
    }
}

/// Returns the upstreams and the collector, each with its name in the output.
fn servers(config: &Config) -> Vec<(String, UpstreamConfig)> {
    let upstream =
        |upstream: &UpstreamConfig| (format!("upstream {}", upstream.name), upstream.clone());
    let otlp = &config.file.otlp;
    let collector = otlp.endpoint.as_ref().map(|url| {
        let name = Label::from_trusted("otlp");
        let server = UpstreamConfig {
            protocol: match otlp.protocol {
                Some(ExportProtocol::Grpc) => Protocol::Http2,
                Some(ExportProtocol::HttpProtobuf) | None => Protocol::Http1,
            },
            ..UpstreamConfig::new(name, url.tls, &url.host, url.port)
        };
        ("OTLP collector".to_owned(), server)
    });
    config.upstreams.iter().map(upstream).chain(collector).collect()
}

/// Opens a connection and closes it. Returns how long the steps took, or which step failed.
async fn attempt(server: UpstreamConfig) -> Result<String, String> {
    let upstream = Upstream::new(server).map_err(|error| WithCauses(&error).to_string())?;
    let timed_out = || format!("no connection within {TIMEOUT:?}");
    match tokio::time::timeout(TIMEOUT, upstream.try_connection()).await {
        Ok(Ok(timings)) => Ok(describe(&timings)),
        Ok(Err(ConnectError::Failed(failure, cause))) => Err(format!("{}: {cause}", step(failure))),
        Ok(Err(ConnectError::TimedOut)) | Err(_) => Err(timed_out()),
    }
}

fn describe(timings: &ConnectTimings) -> String {
    let steps = [("DNS", timings.dns), ("TCP", timings.tcp), ("TLS", timings.tls)];
    let steps = steps
        .into_iter()
        .filter_map(|(step, time)| Some(format!("{step} {:.1} ms", time?.as_secs_f64() * 1e3)));
    format!("reached; {}", steps.collect::<Vec<_>>().join(", "))
}

const fn step(failure: UpstreamFailure) -> &'static str {
    match failure {
        UpstreamFailure::Dns => "DNS",
        UpstreamFailure::Connect => "TCP",
        UpstreamFailure::Tls => "TLS",
        UpstreamFailure::Protocol | UpstreamFailure::BeforeResponse | UpstreamFailure::MidBody => {
            "HTTP"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::{self, ReferencedFiles};

    #[tokio::test]
    async fn says_which_step_failed_for_which_server() {
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let [open_port, plain_port] = [&open, &plain].map(|it| it.local_addr().unwrap().port());
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.yaml");
        let text = format!(
            "upstreams:\n  a: {{url: \"http://127.0.0.1:{open_port}\"}}\n  \
             b: {{url: \"http://{closed}\"}}\n  c: {{url: \"https://127.0.0.1:{plain_port}\"}}\n  \
             d: {{url: \"http://nowhere.invalid\"}}\nroutes: [{{upstream: a}}]\n\
             otlp: {{endpoint: \"http://{closed}\"}}\n"
        );
        std::fs::write(&file, text).unwrap();
        let config = config::check(Path::new(&file), ReferencedFiles::Verify).unwrap();
        let answer = async {
            let (mut stream, _) = plain.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            stream
        };
        let proxies = Proxies::default();
        let (attempts, _stream) = tokio::join!(connect(&config, &proxies), answer);
        assert_eq!(attempts.failed, 4);
        let expected = [
            format!("upstream a (127.0.0.1:{open_port}): reached; TCP "),
            format!("upstream b ({closed}): not reached: TCP: Connection refused"),
            format!("upstream c (127.0.0.1:{plain_port}): not reached: TLS: "),
            "upstream d (nowhere.invalid:80): not reached: DNS: ".to_owned(),
            format!("OTLP collector ({closed}): not reached: TCP: Connection refused"),
        ];
        assert_eq!(attempts.lines.len(), expected.len());
        for (line, expected) in attempts.lines.iter().zip(expected) {
            assert!(line.starts_with(&expected), "{line}");
        }
    }
}
