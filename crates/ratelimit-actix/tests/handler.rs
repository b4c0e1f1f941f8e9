//! Limited handlers, also below and above the attributes of routes.

use actix_web::{
    App, HttpResponse, Responder, get,
    test::{self, TestRequest},
    web::{self, Json, Path},
};
use ratelimit_actix::{ApiKey, Limiter, Policy, RateLimit, Registry, Rejection, rate_limit};

#[get("/plain")]
#[rate_limit("2/min")]
async fn plain() -> &'static str {
    "hello"
}

#[actix_web::route("/number/{id}", method = "PUT", method = "POST")]
#[rate_limit("2/min")]
async fn number(id: Path<u8>, Json(number): Json<u64>) -> impl Responder {
    HttpResponse::Ok().body(format!("{id} {number}"))
}

#[rate_limit("2/min", unlimited = double_unlimited)]
#[actix_web::post("/double")]
async fn double(Json(value): Json<u64>) -> String {
    (value * 2).to_string()
}

#[rate_limit("1/h", scope = "key", key = ApiKey)]
#[get("/key")]
async fn by_key() -> &'static str {
    "hello"
}

#[rate_limit("1/h", scope = "text", key = "header:x-api-key")]
#[get("/text")]
async fn by_text() -> &'static str {
    "hello"
}

fn borrowing(rejection: &Rejection<'_>) -> impl Responder {
    HttpResponse::ImATeapot().body(rejection.policy.name().to_owned())
}

#[get("/conditional")]
#[rate_limit("1/h", on_denied = borrowing)]
async fn conditional(#[cfg(any())] missing: Missing, #[cfg(not(any()))] text: String) -> String {
    text
}

/// An application whose items have the names that an expansion might use.
mod names {
    use actix_web::{HttpRequest, HttpResponse, web::Json};
    use ratelimit_actix::{Key, KeyError, Rejection, rate_limit};

    type Marker = String;
    const LIMIT: u64 = 2;
    const DECLARED: u64 = 3;

    fn cost(_: &HttpRequest) -> u64 {
        LIMIT
    }

    fn request(_: &HttpRequest) -> u64 {
        DECLARED
    }

    fn limit(_: &HttpRequest) -> Result<Key, KeyError> {
        Ok(Key::new("one")?)
    }

    fn handler_limit(_: &HttpRequest) -> bool {
        false
    }

    fn tier(_: &HttpRequest) -> Option<String> {
        None
    }

    fn denied(_: &Rejection<'_>) -> HttpResponse {
        HttpResponse::ImATeapot().finish()
    }

    fn rejection(rejection: &Rejection<'_>) -> HttpResponse {
        denied(rejection)
    }

    #[rate_limit("10/min", cost = cost, key = limit, on_denied = denied)]
    pub(super) async fn limited(Json(argument_0): Json<Marker>) -> String {
        format!("{argument_0} {LIMIT}")
    }

    #[rate_limit("10/min", cost = request, exempt_when = handler_limit, on_denied = rejection)]
    pub(super) async fn handler(Json(limited): Json<Marker>) -> String {
        format!("{limited} {LIMIT}")
    }

    #[rate_limit("10/min", cost = LIMIT + DECLARED, on_denied = denied)]
    pub(super) async fn argument_0(Json(request): Json<Marker>) -> String {
        format!("{request} {LIMIT}")
    }

    #[rate_limit(policy = "login", cost = DECLARED, tier = tier, on_denied = denied)]
    pub(super) async fn payload(Json(payload): Json<Marker>) -> String {
        format!("{payload} {LIMIT}")
    }
}

#[actix_web::test]
async fn a_handler_below_its_route_is_limited_and_always_has_the_headers() {
    let app = App::new().app_data(Limiter::in_memory());
    let app = test::init_service(app.service(plain).service(number)).await;
    let asked = async |request: TestRequest| {
        let peer = ([203, 0, 113, 7], 443).into();
        let answer = test::call_service(&app, request.peer_addr(peer).to_request()).await;
        let left = answer.headers().get("x-ratelimit-remaining");
        let left = left.map(|left| left.to_str().expect("a number").to_owned());
        (answer.status().as_u16(), left.unwrap_or_default())
    };
    let put = |body| TestRequest::put().uri("/number/7").set_json(body);

    for (status, left) in [(200, "1"), (200, "0"), (429, "0")] {
        let told = asked(TestRequest::get().uri("/plain")).await;
        assert_eq!(told, (status, left.to_owned()));
    }
    assert_eq!(asked(put("five")).await, (400, "1".to_owned()));
    let bad_path = TestRequest::post().uri("/number/seven").set_json(5);
    assert_eq!(asked(bad_path).await, (404, "0".to_owned()));
    assert_eq!(asked(put("five")).await, (429, "0".to_owned()));
}

#[actix_web::test]
async fn a_handler_above_its_route_is_limited_and_can_be_called_without_its_limit() {
    let app = App::new().app_data(Limiter::in_memory()).service(double);
    let app = test::init_service(app).await;
    for status in [200, 200, 429] {
        let peer = ([203, 0, 113, 7], 443).into();
        let request = TestRequest::post().uri("/double").peer_addr(peer);
        let response = test::call_service(&app, request.set_json(2).to_request()).await;
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(double_unlimited(Json(2)).await, "4");
    }
}

#[actix_web::test]
async fn items_of_the_application_keep_their_names_in_a_limited_handler() {
    let login = Policy::parse("login", "10/min").expect("a policy");
    let app = App::new()
        .app_data(Limiter::in_memory())
        .app_data(Registry::from_policies([login]))
        .route("/limited", web::post().to(names::limited))
        .route("/handler", web::post().to(names::handler))
        .route("/argument_0", web::post().to(names::argument_0))
        .route("/payload", web::post().to(names::payload));
    let app = test::init_service(app).await;
    let asked = async |path: &str| {
        let peer = ([203, 0, 113, 7], 443).into();
        let request = TestRequest::post().uri(path).peer_addr(peer);
        let response = test::call_service(&app, request.set_json("body").to_request()).await;
        let left = response.headers().get("x-ratelimit-remaining").cloned();
        let status = response.status().as_u16();
        (status, left, test::read_body(response).await)
    };
    for (path, cost) in [
        ("/limited", 2),
        ("/handler", 3),
        ("/argument_0", 5),
        ("/payload", 3),
    ] {
        for hit in 1..=10 / cost {
            let (status, left, body) = asked(path).await;
            assert_eq!(
                (status, left),
                (200, Some((10 - hit * cost).into())),
                "{path}"
            );
            assert_eq!(body, "body 2", "{path}");
        }
        assert_eq!(asked(path).await.0, 418, "{path}");
    }
}

#[actix_web::test]
async fn no_key_of_a_handler_shows_a_secret() {
    let limiter = Limiter::in_memory();
    let app = App::new().app_data(limiter.clone());
    let app = test::init_service(app.service(by_key).service(by_text)).await;
    for policy in ["key", "text"] {
        for expected in [200, 429] {
            let request = TestRequest::get().uri(&format!("/{policy}"));
            let request = request.insert_header(("x-api-key", "s3cr3t")).to_request();
            assert_eq!(test::call_service(&app, request).await.status(), expected);
        }
        let worst = limiter.offenders(policy, 1);
        assert!(worst[0].key.as_str().starts_with("sha256~"), "{worst:?}");
    }
}

#[actix_web::test]
async fn a_parameter_can_have_a_condition_and_a_response_a_type_that_borrows() {
    let peer = "203.0.113.7:443".parse().expect("an address");
    let limit = RateLimit::per_client("1/h").expect("limits");
    let limit = limit.on_denied(|rejection| {
        let response = borrowing(rejection).respond_to(rejection.request);
        response.map_into_boxed_body()
    });
    let layered = web::resource("/layered").wrap(limit).to(async || "hello");
    let app = App::new().app_data(Limiter::in_memory());
    let app = test::init_service(app.service(conditional).service(layered)).await;
    for path in ["/conditional", "/layered"] {
        for expected in [200, 418] {
            let request = TestRequest::get().uri(path).peer_addr(peer).to_request();
            assert_eq!(test::call_service(&app, request).await.status(), expected);
        }
    }
}
