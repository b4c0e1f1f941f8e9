//! Limited handlers below the attributes of routes.

use actix_web::{
    App, HttpResponse, Responder, get,
    test::{self, TestRequest},
    web::{Json, Path},
};
use ratelimit_actix::{Limiter, rate_limit};

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
