//! Tests of calls that get no response from an upstream.

use std::sync::Arc;

use super::{Play, at, open, parsers};
use crate::ObservedExchange;
use tokengauge_measure::record::Record;
use tokengauge_types::event::{
    Direction, Ending, ExchangeId, Headers, ObserverEvent, ResponseHead, RouteFacts,
    UpstreamFailure,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Label, Name};

const REFUSED: Ending = Ending::UpstreamFailed(UpstreamFailure::Connect);

/// Plays a request of which the observer receives `body` before `end`. `length` is the length of the whole body.
fn play(path: &str, body: &str, length: Option<usize>, end: impl FnOnce(Play) -> Record) -> Record {
    let mut open = open(path);
    open.length = length.map(|length| length as u64);
    Arc::make_mut(&mut open.route).server_address = Label::from_trusted("10.0.0.1");
    let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
    let exchange =
        ObservedExchange::new(ExchangeId(1), at(100), Box::new(open), limiter, parsers());
    let mut play = Play { exchange, samples: Vec::new() };
    play.apply_event(100, ObserverEvent::Admitted, b"");
    play.arrival(110, Direction::Request, body, 0);
    end(play)
}

fn refused(mut play: Play) -> Record {
    play.apply_event(120, own(502), b"");
    play.end(120, REFUSED).0
}

fn own(status: u16) -> ObserverEvent {
    ObserverEvent::ResponseHead(Box::new(ResponseHead {
        status,
        version: http::Version::HTTP_11,
        headers: Headers::default(),
        length: None,
        from_proxy: true,
    }))
}

fn provider(record: &Record) -> Option<&str> {
    Some(record.call.as_ref()?.series.provider.as_str())
}

/// Paths that several APIs share, with the provider that the path alone shows.
const SHARED: [(&str, &str); 3] = [
    ("/model/arn:aws:bedrock:eu-west-1:1:inference-profile/x/invoke", "aws.bedrock"),
    ("/generate", "vllm"),
    ("/serving-endpoints/llama/invocations", "openai"),
];

#[test]
fn keeps_the_api_of_the_path_while_the_body_is_undecided() {
    for (path, expected) in SHARED {
        let record = play(path, r#"{"parameters":{"#, Some(900), refused);
        assert_eq!(provider(&record), Some(expected), "{path}");
        let record = play(path, "", None, refused);
        assert_eq!(provider(&record), Some(expected), "{path}: the client sent nothing in time");
        let record = play(path, "", Some(9), |play| play.end(900, Ending::ClientDisconnected).0);
        assert_eq!(provider(&record), Some(expected), "{path}: the client left");
    }
}

/// Plays a call on `route` that is refused, or that a llama.cpp server answers. Returns its provider.
fn on_route(route: &Arc<RouteFacts>, answers: bool) -> String {
    let mut open = open("/v1/chat/completions");
    open.route = Arc::clone(route);
    let mut play = Play::opened(open, super::STREAMED);
    if !answers {
        return provider(&refused(play)).unwrap().to_owned();
    }
    let server = ("server", Name::new("llama.cpp").unwrap());
    play.apply_event(
        200,
        ObserverEvent::ResponseHead(Box::new(ResponseHead {
            status: 200,
            version: http::Version::HTTP_11,
            headers: Headers::from_iter([server]),
            length: None,
            from_proxy: false,
        })),
        b"",
    );
    provider(&play.end(300, Ending::Complete).0).unwrap().to_owned()
}

#[test]
fn failures_have_the_provider_that_an_earlier_response_revealed() {
    let route = |configured: Option<&str>| {
        let mut route = RouteFacts::clone(&open("/").route);
        route.server_address = Label::from_trusted("10.0.0.1");
        route.provider = configured.map(Label::from_trusted);
        Arc::new(route)
    };
    let learning = route(None);
    let told = [false, true, false].map(|answers| on_route(&learning, answers));
    assert_eq!(told, ["openai", "llama_cpp", "llama_cpp"]);
    let mut named = RouteFacts::clone(&route(None));
    named.server_address = Label::from_trusted("api.groq.com");
    assert_eq!(on_route(&Arc::new(named), true), "groq", "the host applies before the headers");
    let configured = route(Some("vllm"));
    assert_eq!([true, false].map(|answers| on_route(&configured, answers)), ["vllm", "vllm"]);
    let reloaded = route(None);
    reloaded.keep_learned_provider(&learning);
    assert_eq!(on_route(&reloaded, false), "llama_cpp");
    let mut elsewhere = RouteFacts::clone(&route(None));
    elsewhere.server_port = 1;
    elsewhere.keep_learned_provider(&learning);
    assert_eq!(on_route(&Arc::new(elsewhere), false), "openai", "another upstream");
}

#[test]
fn the_body_decides_if_it_is_known() {
    let tgi = r#"{"inputs":"Hi","stream":true}"#;
    let part = Some(tgi.len() + 9);
    assert_eq!(provider(&play("/generate", tgi, part, refused)), Some("tgi"));
    let record = play("/generate", tgi, part, |play| play.end(900, Ending::ClientDisconnected).0);
    assert_eq!(provider(&record), Some("tgi"), "without a response");
    let other = r#"{"query":"Hi"}"#;
    assert_eq!(provider(&play("/generate", other, Some(other.len()), refused)), None);
    let record = play("/generate", other, Some(other.len()), |play| {
        play.end(900, Ending::ClientDisconnected).0
    });
    assert_eq!(provider(&record), None, "without a response");
}

#[test]
fn a_success_before_the_end_of_the_request_is_no_call() {
    let record = play("/generate", r#"{"parameters":{"#, Some(900), |mut play| {
        play.head(120, 200, "application/json");
        play.end(130, Ending::Complete).0
    });
    assert_eq!(provider(&record), None);
}
