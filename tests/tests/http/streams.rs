//! Many requests on one connection.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratelimit_tests::redis::{TestRedis, connected};
use tokio::{
    net::TcpStream,
    sync::{Notify, mpsc},
};

use crate::server::{Asker, Version, clock, header, layer, layer_over, number, serve, serve_with};

type Sender = http2::SendRequest<Empty<Bytes>>;

async fn connect(server: std::net::SocketAddr) -> Sender {
    let stream = TcpStream::connect(server)
        .await
        .expect("the server listens");
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = handshake.expect("the server speaks HTTP/2");
    tokio::spawn(connection);
    sender
}

fn request(path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("http://server.example{path}");
    Request::get(uri).body(Empty::new()).expect("a request")
}

const HUNDRED: [&str; 3] = ["100/h", "fixed_window 100/h", "sliding_window_log 100/h"];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_streams_at_once_pass_a_limit_of_a_hundred_a_hundred_times() {
    for limits in HUNDRED {
        let sender = connect(serve("127.0.0.1", layer(&clock(), limits)).await).await;

        assert_eq!(passed_of(200, &[sender]).await, 100, "{limits}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_instances_with_one_redis_pass_a_hundred_together() {
    let redis = TestRedis::start().await;
    for limits in HUNDRED {
        let config = redis.config().clock(clock());
        let mut senders = Vec::new();
        for _ in 0..2 {
            let store = connected(config.clone()).await;
            senders.push(connect(serve("127.0.0.1", layer_over(store, limits)).await).await);
        }

        assert_eq!(passed_of(200, &senders).await, 100, "{limits}");
    }
}

/// How many of so many requests at once pass, dealt out to the senders in turn.
async fn passed_of(requests: usize, senders: &[Sender]) -> usize {
    let dealt = senders.iter().cycle().take(requests);
    let answers = dealt.map(|sender| tokio::spawn(sender.clone().send_request(request("/"))));
    let answers = join_all(answers).await.into_iter();
    let statuses = answers.map(|answer| answer.expect("no panic").expect("an answer").status());
    statuses.filter(|status| *status == StatusCode::OK).count()
}

#[tokio::test]
async fn a_stream_that_is_reset_after_the_check_still_costs() {
    let (entered, mut entries) = mpsc::unbounded_channel();
    let never = Arc::new(Notify::new());
    let slow = tower::service_fn(move |request: Request<Incoming>| {
        let (entered, never) = (entered.clone(), Arc::clone(&never));
        async move {
            if request.uri().path() == "/slow" {
                entered.send(()).expect("the test listens");
                never.notified().await;
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let server = serve_with("127.0.0.1", layer(&clock(), "5/min"), slow).await;
    let mut sender = connect(server).await;

    for _ in 0..3 {
        let answer = tokio::spawn(sender.send_request(request("/slow")));
        entries.recv().await.expect("the handler is entered");
        answer.abort();
    }
    let after = sender.send_request(request("/")).await.expect("an answer");

    assert_eq!(number(&after, "x-ratelimit-remaining"), Some(1));
}

#[tokio::test]
async fn a_denied_grpc_call_is_answered_by_headers_alone() {
    let mut sender = connect(serve("127.0.0.1", layer(&clock(), "1/min")).await).await;
    let call = || {
        let request = Request::post("http://server.example/pkg.Service/Method");
        let request = request
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        request.body(Empty::new()).expect("a request")
    };
    sender.send_request(call()).await.expect("an answer");

    let denied = sender.send_request(call()).await.expect("an answer");

    assert_eq!(denied.status(), StatusCode::OK);
    assert_eq!(header(&denied, "content-type"), Some("application/grpc"));
    assert_eq!(header(&denied, "grpc-status"), Some("8"));
    assert_eq!(header(&denied, "grpc-retry-pushback-ms"), Some("60000"));
    let body = denied.into_body().collect().await.expect("an end");
    assert_eq!(body.trailers(), None);
    assert!(body.to_bytes().is_empty());
}

#[tokio::test]
async fn connections_share_the_budget_of_their_client() {
    let server = serve("127.0.0.1", layer(&clock(), "4/min")).await;

    let mut passed = 0;
    for version in [Version::Http1, Version::Http2].repeat(3) {
        let answer = Asker::new(version, server).get("/").await;
        passed += u32::from(answer.status() == StatusCode::OK);
    }

    assert_eq!(passed, 4);
}
