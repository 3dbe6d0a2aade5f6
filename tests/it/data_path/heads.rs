//! Tests which headers the proxy forwards unchanged, removes because they are hop-by-hop, or rewrites.

use http::Version;
use tokengauge_types::label::Name;

use crate::support::{Backend, Proxy, Setup, lines, settle};

async fn passed_on(setup: Setup, backend: &Backend, request: &str) -> String {
    let proxy = setup.start().await;
    let mut client = proxy.client().await;
    client.write(request).await;
    backend.accept().await.read_head().await
}

#[tokio::test]
async fn case_repetition_and_values_are_kept_both_ways() {
    let (backend, proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client
        .write("GET /a%2Fb?x=%20&y HTTP/1.1\r\nhost: a\r\nX-CamelCase: One\r\nx-many: 1\r\nX-Many: 2\r\nauthorization: Bearer k\r\nTraceParent: kept\r\n\r\n")
        .await;
    let mut upstream = backend.accept().await;
    let head = upstream.read_head().await;
    let mut got = lines(&head);
    assert_eq!(got.remove(0), "GET /a%2Fb?x=%20&y HTTP/1.1");
    let host = format!("host: {}", backend.address);
    assert_eq!(
        got,
        [
            host.as_str(),
            "X-CamelCase: One",
            "x-many: 1",
            "X-Many: 2",
            "authorization: Bearer k",
            "TraceParent: kept"
        ],
        "no header is added: no Via, no X-Forwarded-For, no Connection"
    );
    upstream
        .write(b"HTTP/1.1 413 Too Big\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nX-Odd: \xe9\r\ncontent-length: 0\r\n\r\n")
        .await;
    let head = client.read_head().await;
    assert_eq!(
        lines(&head),
        [
            "HTTP/1.1 413 Too Big",
            "Set-Cookie: a=1",
            "set-cookie: b=2",
            "X-Odd: \u{fffd}",
            "content-length: 0"
        ],
        "no header is added: no Date, no Server"
    );
}

#[tokio::test]
async fn removes_hop_by_hop_headers() {
    let (backend, proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client
        .write("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Hop, host\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\nTE: trailers, deflate\r\nUpgrade: h2c\r\nX-Kept: 1\r\n\r\n")
        .await;
    let mut upstream = backend.accept().await;
    let head = upstream.read_head().await.to_ascii_lowercase();
    let mut got = lines(&head);
    got.sort_unstable();
    let host = format!("host: {}", backend.address);
    assert_eq!(got, ["get / http/1.1", host.as_str(), "te: trailers", "x-kept: 1"]);
    upstream
        .write("HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\nContent-Length: 0\r\nX-Kept: 1\r\n\r\n")
        .await;
    let head = client.read_head().await;
    assert_eq!(
        lines(&head),
        ["HTTP/1.1 200 OK", "X-Kept: 1", "Content-Length: 0"].map(str::to_owned).to_vec()
    );
}

#[tokio::test]
async fn preserves_the_host_only_if_configured() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.preserve_host = true;
    let head = passed_on(setup, &backend, "GET / HTTP/1.1\r\nHost: asked.example:81\r\n\r\n").await;
    assert!(head.contains("\r\nHost: asked.example:81\r\n"), "{head}");
}

#[tokio::test]
async fn a_preserved_host_has_no_user_and_password() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.preserve_host = true;
    let request = "GET http://me:hunter2@asked.example/v1 HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = passed_on(setup, &backend, request).await;
    assert!(head.contains("\r\nHost: asked.example\r\n"), "{head}");
    assert!(!head.contains("hunter2"), "{head}");
}

/// Returns the status line of the response to `request`.
async fn status_of(setup: Setup, request: &str) -> String {
    let proxy = setup.start().await;
    let mut client = proxy.client().await;
    client.write(request).await;
    lines(&client.read_head().await)[0].to_owned()
}

#[tokio::test]
async fn a_request_without_one_host_is_rejected() {
    let backend = Backend::start().await;
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
    ] {
        let status = status_of(Setup::to(backend.address), request).await;
        assert!(status.ends_with(" 400 Bad Request"), "{request}: {status}");
    }
    assert!(!backend.has_another().await, "nothing was forwarded");
    let head = passed_on(Setup::to(backend.address), &backend, "GET / HTTP/1.0\r\n\r\n").await;
    assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
}

#[tokio::test]
async fn a_path_cannot_leave_the_prefix_or_the_base_path() {
    let backend = Backend::start().await;
    for (prefix, base_path, path) in [
        ("/openai", "", "/openai/../admin"),
        ("/openai", "/v1", "/openai/%2e%2E/admin"),
        ("", "/v1", "/..%2fadmin"),
    ] {
        let mut setup = Setup::to(backend.address);
        setup.prefix = prefix.to_owned();
        setup.upstream.base_path = base_path.to_owned();
        let status = status_of(setup, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(status, "HTTP/1.1 400 Bad Request", "{path}");
    }
    assert!(!backend.has_another().await, "nothing was forwarded");
    let request = "GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = passed_on(Setup::to(backend.address), &backend, request).await;
    assert!(
        head.starts_with("GET /a/../b HTTP/1.1\r\n"),
        "without limits, nothing changes: {head}"
    );
}

#[tokio::test]
async fn strips_the_prefix_and_prepends_the_base_path() {
    for (path, expected) in [
        ("/openai/chat?x=1", "/v1/chat?x=1"),
        ("/openai", "/v1"),
        ("/openai/", "/v1/"),
        ("/openai?x", "/v1?x"),
    ] {
        let backend = Backend::start().await;
        let mut setup = Setup::to(backend.address);
        setup.prefix = "/openai".to_owned();
        setup.upstream.base_path = "/v1".to_owned();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = passed_on(setup, &backend, &request).await;
        assert_eq!(lines(&head)[0], format!("GET {expected} HTTP/1.1"));
    }
}

#[tokio::test]
async fn an_absolute_target_and_an_asterisk_pass() {
    for (line, expected) in [
        ("GET http://asked.example/v1?x HTTP/1.1", "GET /v1?x HTTP/1.1"),
        ("OPTIONS * HTTP/1.1", "OPTIONS * HTTP/1.1"),
    ] {
        let backend = Backend::start().await;
        let setup = Setup::to(backend.address);
        let head = passed_on(setup, &backend, &format!("{line}\r\nHost: a\r\n\r\n")).await;
        assert_eq!(lines(&head)[0], expected);
    }
}

#[tokio::test]
async fn only_allowed_headers_and_no_query_reach_the_observer() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client
        .write("GET /v1/x?key=secret HTTP/1.1\r\nHost: asked.example\r\nAuthorization: Bearer secret\r\nUser-Agent: test/1\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n")
        .await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    client.read_head().await;
    proxy.words().await;
    let open = proxy.opened();
    assert_eq!(open.path.as_str(), "/v1/x");
    assert_eq!(open.host.as_ref().map(|host| host.as_str()), Some("asked.example"));
    assert_eq!(open.version, Version::HTTP_11);
    assert_eq!(open.headers.get("user-agent"), Some("test/1"));
    assert_eq!(open.client, Some("127.0.0.1".parse().unwrap()));
    assert_eq!(open.trace.trace_id[0], 0x4b);
    assert!(!format!("{open:?}").contains("secret"), "{open:?}");
}

#[tokio::test]
async fn rejects_100_000_header_lines_without_forwarding() {
    let (backend, proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    let (mut from, mut to) = client.0.split();
    let sending = async {
        use tokio::io::AsyncWriteExt as _;
        to.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n").await?;
        for n in 0..100_000 {
            to.write_all(format!("X-{n}: {n}\r\n").as_bytes()).await?;
        }
        std::io::Result::Ok(())
    };
    let reading = async {
        let mut answer = Vec::new();
        drop(tokio::io::AsyncReadExt::read_to_end(&mut from, &mut answer).await);
        answer
    };
    let (_, answer) = tokio::join!(sending, reading);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    settle().await;
    assert!(!backend.has_another().await, "no request was forwarded");
    assert_eq!(proxy.channel.open_exchanges(), 0);
}

#[tokio::test]
async fn records_only_the_model_of_a_query() {
    for (query, known) in [
        ("key=secret1&model=gpt-realtime&sig=secret2", Some("gpt-realtime")),
        ("api-version=secret1&deployment=my%2Dmodel", Some("my-model")),
        ("X-Amz-Security-Token=secret1&models=secret2&amodel=secret2", None),
        ("secret1", None),
    ] {
        let (backend, mut proxy) = Proxy::with_backend().await;
        let mut client = proxy.client().await;
        let target = format!("/v1/realtime?{query}");
        client.write(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let mut upstream = backend.accept().await;
        let head = upstream.read_head().await;
        assert_eq!(
            lines(&head)[0],
            format!("GET {target} HTTP/1.1"),
            "the target is forwarded unchanged"
        );
        drop((client, upstream));
        proxy.words().await;
        let opened = proxy.opened();
        assert_eq!(opened.model.as_ref().map(Name::as_str), known, "{query}");
        let all = format!("{opened:?}");
        assert!(!all.contains("secret"), "{all}");
    }
}
