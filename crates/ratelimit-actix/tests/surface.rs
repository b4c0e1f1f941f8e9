//! The surface of axum's layer in actix-web: keys from extensions, slots, and checks by hand.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::mpsc,
    time::{Duration, Instant},
};

use actix_web::{
    App, HttpMessage as _, HttpRequest, HttpResponse, HttpServer, Responder,
    dev::{Service as _, ServiceRequest},
    middleware::{Next, from_fn},
    test::{self, TestRequest},
    web::{self, Data, ReqData},
};
use ratelimit_actix::{
    Decision, DecisionSharing, ExtensionKey, HttpPolicy, Key, Limiter, Policy, RateLimit,
    SlotGuard, TierResolver, rate_limit,
};

struct User(String);

fn policy(limits: &str) -> Policy {
    Policy::parse("api", limits).expect("a policy")
}

/// Looks the user of a token up, as a database would be asked.
async fn authenticate(
    request: ServiceRequest,
    next: Next<impl actix_web::body::MessageBody>,
) -> Result<actix_web::dev::ServiceResponse<impl actix_web::body::MessageBody>, actix_web::Error> {
    let token = request.headers().get("authorization").cloned();
    tokio_yield().await;
    if let Some(token) = token {
        let user = User(token.to_str().expect("text").to_owned());
        request.extensions_mut().insert(user);
    }
    next.call(request).await
}

async fn tokio_yield() {
    let mut has_yielded = false;
    std::future::poll_fn(|cx| {
        if has_yielded {
            return std::task::Poll::Ready(());
        }
        has_yielded = true;
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

#[actix_web::test]
async fn an_asynchronous_middleware_finds_the_key() {
    let by_user = ExtensionKey::new(|user: &User| Ok(Key::tagged("user", &user.0)?));
    let limit = RateLimit::new(Limiter::in_memory(), policy("1/min")).key_by(by_user);
    let app = App::new()
        .route("/", web::get().to(async || "hello"))
        .wrap(limit)
        .wrap(from_fn(authenticate));
    let app = test::init_service(app).await;
    let sent = async |token: Option<&str>| {
        let mut request = TestRequest::get();
        if let Some(token) = token {
            request = request.insert_header(("authorization", token));
        }
        test::call_service(&app, request.to_request())
            .await
            .status()
    };

    assert_eq!(sent(Some("alice")).await, 200);
    assert_eq!(sent(Some("alice")).await, 429);
    assert_eq!(sent(Some("bob")).await, 200);
    assert_eq!(sent(None).await, 400);
}

#[actix_web::test]
async fn outer_middleware_finds_the_decision_where_it_is_shared() {
    for (sharing, in_request, in_response) in [
        (DecisionSharing::Off, false, false),
        (DecisionSharing::Request, true, false),
        (DecisionSharing::RequestAndResponse, true, true),
    ] {
        let limit = RateLimit::new(Limiter::in_memory(), policy("1/min"));
        let limit = limit
            .key_by(|_: &HttpRequest| Ok(Key::new("everybody")?))
            .share_decision(sharing);
        let handler = |request: HttpRequest| async move {
            request.extensions().contains::<Decision>().to_string()
        };
        let app = App::new().route("/", web::get().to(handler)).wrap(limit);
        let app = test::init_service(app).await;

        let allowed = test::call_service(&app, TestRequest::get().to_request()).await;
        let denied = test::call_service(&app, TestRequest::get().to_request()).await;

        for response in [&allowed, &denied] {
            let shared = response.response().extensions().contains::<Decision>();
            assert_eq!(shared, in_response, "{sharing:?}");
        }
        assert_eq!(denied.status(), 429);
        let body = test::read_body(allowed).await;
        assert_eq!(body, in_request.to_string(), "{sharing:?}");
    }
}

#[actix_web::test]
async fn a_handler_can_keep_its_slot() {
    let policy = policy("concurrency 1 lease 30s by global");
    let limit = RateLimit::new(Limiter::in_memory(), policy);
    let kept: Data<std::sync::Mutex<Option<SlotGuard>>> = Data::default();
    let handler = async |slot: Option<ReqData<SlotGuard>>,
                         kept: Data<std::sync::Mutex<Option<SlotGuard>>>| {
        *kept.lock().expect("not poisoned") = slot.map(ReqData::into_inner);
        "kept"
    };
    let app = App::new()
        .app_data(kept.clone())
        .route("/", web::get().to(handler))
        .wrap(limit);
    let app = test::init_service(app).await;
    let sent = async || {
        let response = test::call_service(&app, TestRequest::get().to_request()).await;
        let status = response.status();
        drop(test::read_body(response).await);
        status
    };

    assert_eq!(sent().await, 200);
    assert_eq!(sent().await, 429, "the session keeps the slot");
    drop(kept.lock().expect("not poisoned").take());
    assert_eq!(sent().await, 200);
}

/// Sends a request over a new connection.
fn send_get(server: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

#[actix_web::test]
async fn a_hang_up_releases_the_slot_if_connections_are_not_half_closed() {
    let limit = RateLimit::new(
        Limiter::in_memory(),
        policy("concurrency 1 lease 1h by global"),
    );
    let (entered, handlers) = mpsc::channel();
    let server = HttpServer::new(move || {
        let entered = entered.clone();
        let wait = move || {
            entered.send(()).expect("the test waits");
            std::future::pending::<&str>()
        };
        App::new()
            .route("/wait", web::get().to(wait))
            .route("/", web::get().to(async || "hello"))
            .wrap(limit.clone())
    });
    let server = server.workers(1).h1_allow_half_closed(false);
    let server = server.bind(("127.0.0.1", 0)).expect("a free port");
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    actix_web::rt::spawn(server);
    let client = std::thread::spawn(move || {
        let status = || {
            let mut response = String::new();
            let read = send_get(address, "/").read_to_string(&mut response);
            read.expect("a response");
            response[9..12].to_owned()
        };
        let waiting = send_get(address, "/wait");
        handlers.recv().expect("the handler runs");
        let before = status();
        drop(waiting);
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut after = status();
        while after == "429" && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            after = status();
        }
        (before, after)
    });
    while !client.is_finished() {
        actix_web::rt::time::sleep(Duration::from_millis(10)).await;
    }

    let (before, after) = client.join().expect("no panic");
    assert_eq!((&*before, &*after), ("429", "200"));
    handle.stop(false).await;
}

#[actix_web::test]
async fn a_rule_in_a_scope_compares_the_path_as_it_was_sent() {
    let policy = HttpPolicy::from(policy("1/h by global"))
        .with_block_rule("path:/api/admin/*".parse().expect("a rule"))
        .with_exempt_rule("path:/health".parse().expect("a rule"));
    let limit = RateLimit::new(Limiter::in_memory(), policy);
    let hello = || web::get().to(async || "hello");
    let scope = web::scope("/api")
        .wrap(limit)
        .route("/health", hello())
        .route("/admin/users", hello());
    let app = test::init_service(App::new().service(scope)).await;
    let status = async |path: &str| {
        let request = TestRequest::get().uri(path).to_request();
        test::call_service(&app, request).await.status().as_u16()
    };

    assert_eq!(status("/api/admin/users").await, 403);
    assert_eq!(status("/api/health").await, 200);
    assert_eq!(status("/api/health").await, 429, "it is not exempt");
}

#[actix_web::test]
async fn a_request_over_the_limit_in_shadow_mode_has_no_slot() {
    let policy = policy("concurrency 1 lease 30s by global").shadow();
    let limit = RateLimit::new(Limiter::in_memory(), policy);
    let handler = async |slot: Option<ReqData<SlotGuard>>| slot.is_some().to_string();
    let app = App::new().route("/", web::get().to(handler)).wrap(limit);
    let app = test::init_service(app).await;
    let send = async || test::call_service(&app, TestRequest::get().to_request()).await;

    let (first, second) = (send().await, send().await);

    assert_eq!([first.status(), second.status()], [200, 200]);
    assert_eq!(test::read_body(second).await, "false");
    drop(first);
}

#[actix_web::test]
async fn a_handler_can_check_by_hand() {
    async fn search(request: HttpRequest, limit: Data<RateLimit>) -> impl Responder {
        match limit.check(&request).await {
            Ok(admission) => {
                let left = admission.decision().map(|decision| decision.remaining);
                let body = format!("{} left", left.unwrap_or_default());
                let response = admission.finish(HttpResponse::NotFound().body(body));
                response.map_into_boxed_body()
            }
            Err(response) => response,
        }
    }
    let login = HttpPolicy::from(policy("2/min by global"));
    let login = login.with_charge_on("404".parse().expect("a status"));
    let limit = RateLimit::new(Limiter::in_memory(), login);
    let app = App::new()
        .app_data(Data::new(limit))
        .route("/", web::get().to(search));
    let app = test::init_service(app).await;

    for (status, left, body) in [(404, "1", "1 left"), (404, "0", "0 left"), (429, "0", "")] {
        let response = app.call(TestRequest::get().to_request()).await;
        let response = response.expect("no error");
        assert_eq!(response.status(), status);
        assert_eq!(
            response.headers().get("x-ratelimit-remaining").unwrap(),
            left
        );
        let text = test::read_body(response).await;
        assert!(status == 429 || text == body, "{text:?}");
    }
}

#[rate_limit("1/min by global")]
async fn shared() -> &'static str {
    "hello"
}

#[actix_web::test]
async fn a_limit_by_global_needs_no_address_but_one_by_ip_does() {
    let limit = |limits| RateLimit::new(Limiter::in_memory(), policy(limits));
    let hello = || web::get().to(async || "hello");
    let app = App::new()
        .app_data(Limiter::in_memory())
        .route("/handler", web::get().to(shared))
        .service(
            web::resource("/global")
                .wrap(limit("1/min by global"))
                .route(hello()),
        )
        .service(
            web::resource("/ip")
                .wrap(limit("1/min by ip"))
                .route(hello()),
        )
        .service(
            web::resource("/both")
                .wrap(limit("1/min by global; 1/min"))
                .route(hello()),
        );
    let app = test::init_service(app).await;

    for (path, status) in [
        ("/handler", 200),
        ("/handler", 429),
        ("/global", 200),
        ("/global", 429),
        ("/ip", 500),
        ("/both", 500),
    ] {
        let request = TestRequest::get().uri(path).to_request();
        assert_eq!(
            test::call_service(&app, request).await.status(),
            status,
            "{path}"
        );
    }
}

#[actix_web::test]
async fn a_tier_can_be_looked_up_asynchronously() {
    let tiered = policy("1/min").with_tier("pro", "2/min").expect("a tier");
    let resolver = TierResolver::new(async |key: Key| {
        tokio_yield().await;
        let is_pro = key.as_str().ends_with("acme");
        Ok::<_, String>(is_pro.then(|| "pro".to_owned()))
    });
    let by_user = ExtensionKey::new(|user: &User| Ok(Key::tagged("user", &user.0)?));
    let limit = RateLimit::new(Limiter::in_memory(), tiered)
        .key_by(by_user)
        .tier_async(resolver);
    let app = App::new()
        .route("/", web::get().to(async || "hello"))
        .wrap(limit)
        .wrap(from_fn(authenticate));
    let app = test::init_service(app).await;
    for (user, status) in [
        ("acme", 200),
        ("acme", 200),
        ("acme", 429),
        ("bob", 200),
        ("bob", 429),
    ] {
        let request = TestRequest::get().insert_header(("authorization", user));
        let response = test::call_service(&app, request.to_request()).await;
        assert_eq!(response.status(), status, "{user}");
    }
}
