//! Spends, and says whether it passed.

use axum::{
    body::{self, Body, HttpBody as _},
    extract::{Request, State},
    http::{Response, StatusCode},
};
use bytes::Bytes;
use futures_util::future::join_all;
use ratelimit_core::Verdict;
use serde::{Deserialize, Serialize};

use super::{json, object::Object, to_json};
use crate::{
    answer::{self, Answer},
    app::App,
    config::Rules,
    question::{Item, Question},
    refusal::Refusal,
};

const MOST_CHECKS: usize = 1_000;

/// The body of several checks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    checks: Vec<Object<Item>>,
}

/// The answers to several checks.
#[derive(Serialize)]
struct Results<'a> {
    results: Vec<Answer<'a>>,
}

/// One check, in the query.
pub(super) async fn get(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let (parts, _) = request.into_parts();
    let rules = app.rules();
    let question = Question::from_query(&app, &rules, &parts)?;
    Ok(one(&app, &rules, &question).await)
}

/// One check, or several as `{"checks":[...]}`, in the body.
pub(super) async fn post(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let (parts, body) = request.into_parts();
    let rules = app.rules();
    let bytes = read(body, app.bounds().body).await?;
    if !is_batch(&bytes)? {
        let Object(item) = parse(&bytes)?;
        let question = Question::from_item(&app, &rules, &parts, item)?;
        return Ok(one(&app, &rules, &question).await);
    }
    let Object(Batch { checks }) = parse(&bytes)?;
    if checks.len() > MOST_CHECKS {
        let too_many = format!("at most {MOST_CHECKS} checks in one request");
        return Err(Refusal::bad_request(too_many));
    }
    // All are read before the first one spends.
    let read = checks.into_iter().enumerate().map(|(place, Object(item))| {
        Question::from_item(&app, &rules, &parts, item).map_err(|why| why.of_check(place))
    });
    let questions: Vec<Question> = read.collect::<Result<_, _>>()?;
    let verdicts = join_all(questions.iter().map(|question| ask(&app, question))).await;
    let answered = questions.iter().zip(&verdicts);
    let results = answered.map(|(question, verdict)| {
        tell_log(&rules, question, verdict);
        Answer::to_check(question, verdict)
    });
    let results = Results {
        results: results.collect(),
    };
    Ok(json(StatusCode::OK, &results))
}

async fn one(app: &App, rules: &Rules, question: &Question) -> Response<Body> {
    let verdict = ask(app, question).await;
    tell_log(rules, question, &verdict);
    let body = to_json(&Answer::to_check(question, &verdict));
    let status = answer::status(&verdict);
    answer::respond(app.headers(), &question.policy, &verdict, status, body)
}

pub(super) async fn ask(app: &App, question: &Question) -> Verdict {
    let Question { policy, key, .. } = question;
    let permits = question.permits.get();
    app.limiter().check_cost(policy, key, permits).await
}

/// Writes denied keys to the log, where that is asked for.
pub(super) fn tell_log(rules: &Rules, question: &Question, verdict: &Verdict) {
    if rules.log_keys && !verdict.is_allowed() {
        let policy = question.policy.name();
        tracing::info!(policy, key = %question.key, permits = question.permits, "denied");
    }
}

async fn read(body: Body, most: usize) -> Result<Bytes, Refusal> {
    let too_large = || {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        Refusal::new(status, "Body too large", format!("at most {most} bytes"))
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    body::to_bytes(body, most).await.map_err(|_| too_large())
}

/// Whether a body holds several checks.
fn is_batch(bytes: &[u8]) -> Result<bool, Refusal> {
    #[derive(Deserialize)]
    struct Form {
        #[serde(default)]
        checks: Option<serde::de::IgnoredAny>,
    }
    parse::<Object<Form>>(bytes).map(|Object(form)| form.checks.is_some())
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes).map_err(|why| Refusal::bad_request(format!("the body: {why}")))
}
