//! Spends, and says whether it passed.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use futures_util::{StreamExt as _, stream};
use ratelimit_core::{Hit, Reservation, Verdict};
use serde::{Deserialize, Serialize};

use super::{
    body::{parse, read},
    json,
    object::Object,
    to_json,
};
use crate::{
    answer::{self, Answer},
    app::App,
    config::Rules,
    query::Query,
    question::{Item, Question},
    refusal::Refusal,
};

const MOST_CHECKS: usize = 1_000;
/// How many checks of one request are decided at a time: an eighth of the calls that a Redis store has
/// under way, so that one request cannot take all places from the others.
const MAX_CONCURRENT_CHECKS: usize = 128;

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
    let mut question = Question::from_query(&app, &rules, &parts)?;
    question.wants_receipt = wants_receipt(Query(parts.uri.query().unwrap_or_default()))?;
    Ok(one(&app, &rules, &question).await)
}

/// One check, or several as `{"checks":[...]}`, in the body.
pub(super) async fn post(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let (parts, body) = request.into_parts();
    let rules = app.rules();
    let bytes = read(&app, body).await?;
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
    let asked = questions.iter().map(|question| ask(&app, &rules, question));
    let asked: Vec<_> = asked.collect();
    let answers = stream::iter(asked).buffered(MAX_CONCURRENT_CHECKS);
    let answers: Vec<Asked> = answers.collect().await;
    let told = answers.into_iter().map(|asked| asked.tell(&app, &rules));
    let answers: Vec<Told> = told.collect();
    let answered = questions.iter().zip(&answers);
    let results = Results {
        results: answered.map(|(asked, told)| told.to(asked)).collect(),
    };
    Ok(json(StatusCode::OK, &results))
}

/// What was decided, and the charge where a receipt was asked for.
///
/// A client that leaves before all its checks are decided drops the charge, and with it the slot.
struct Asked {
    verdict: Verdict,
    charge: Option<Reservation>,
}

impl Asked {
    /// Hands the charge over to the client: nothing is awaited from here to the answer.
    fn tell(self, app: &App, rules: &Rules) -> Told {
        let receipt = self.charge.map(Reservation::into_receipt);
        Told {
            verdict: self.verdict,
            receipt: receipt.map(|receipt| app.seal().close(rules, &receipt)),
        }
    }
}

/// What was decided, and the receipt where one was asked for.
struct Told {
    verdict: Verdict,
    receipt: Option<String>,
}

impl Told {
    fn to<'a>(&'a self, question: &'a Question) -> Answer<'a> {
        Answer::new(question, &self.verdict).with_receipt(self.receipt.as_deref())
    }
}

async fn one(app: &App, rules: &Rules, question: &Question) -> Response<Body> {
    let told = ask(app, rules, question).await.tell(app, rules);
    let verdict = &told.verdict;
    let body = to_json(&told.to(question));
    let status = answer::status(verdict);
    answer::respond(app.headers(), &question.policy, verdict, status, body)
}

async fn ask(app: &App, rules: &Rules, question: &Question) -> Asked {
    if !question.wants_receipt {
        let verdict = spend(app, rules, question).await;
        let charge = None;
        return Asked { verdict, charge };
    }
    let hit = Hit::new(&question.policy, &question.key).cost(question.permits.get());
    let (verdict, charge) = app.limiter().reserve(hit).await;
    tell_log(rules, question, &verdict);
    Asked { verdict, charge }
}

/// Spends; a slot is held until its lease ends.
pub(super) async fn spend(app: &App, rules: &Rules, question: &Question) -> Verdict {
    let Question { policy, key, .. } = question;
    let permits = question.permits.get();
    let verdict = app.limiter().check_cost(policy, key, permits).await;
    tell_log(rules, question, &verdict);
    verdict
}

fn wants_receipt(query: Query<'_>) -> Result<bool, Refusal> {
    match query.one("receipt")?.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Refusal::bad_request("receipt must be true or false")),
    }
}

/// Writes denied keys to the log, where that is asked for.
fn tell_log(rules: &Rules, question: &Question, verdict: &Verdict) {
    if rules.log_keys && !verdict.is_allowed() {
        let policy = question.policy.name();
        tracing::info!(policy, key = %question.key, permits = question.permits, "denied");
    }
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

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use axum::http::header::CONTENT_TYPE;
    use ratelimit_core::{Decision, KeySet, Limiter, MemoryStore, Policy, Store, StoreFuture};
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        config::{Config, Settings},
        metrics::recorder,
    };

    /// A store that answers some polls later, and counts the hits that it has not answered yet.
    #[derive(Clone, Debug, Default)]
    struct Slow {
        store: MemoryStore,
        in_flight: Arc<AtomicUsize>,
        peak: Arc<AtomicUsize>,
    }

    impl Store for Slow {
        fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision> {
            let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            self.peak.fetch_max(in_flight, Ordering::SeqCst);
            let (decided, counter) = (self.store.hit(hit), Arc::clone(&self.in_flight));
            StoreFuture::pending(async move {
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
                counter.fetch_sub(1, Ordering::SeqCst);
                decided.await
            })
        }

        fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
            self.store.reset(policy, keys)
        }
    }

    #[tokio::test]
    async fn one_request_has_at_most_128_hits_in_flight_and_its_answers_in_order() {
        let store = Slow::default();
        let config = Config::load(&Settings::default()).expect("the defaults");
        let metrics = recorder(&config.application).handle();
        let app = App::new(&config, Limiter::new(store.clone()), config.listen, metrics);
        let checks: Vec<String> = (0..MOST_CHECKS)
            .map(|number| format!(r#"{{"key":"user-{number}"}}"#))
            .collect();
        let request = Request::post("/api/v1/rate-limit/check")
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(format!(
                r#"{{"checks":[{}]}}"#,
                checks.join(",")
            )));

        let response = app.router().oneshot(request.expect("a request")).await;

        let response = response.expect("an answer");
        assert_eq!(response.status(), 200);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        let body: serde_json::Value = serde_json::from_slice(&body.expect("a body")).expect("JSON");
        let keys: Vec<_> = body["results"]
            .as_array()
            .expect("results")
            .iter()
            .collect();
        assert_eq!(keys.len(), MOST_CHECKS);
        for (number, answer) in keys.into_iter().enumerate() {
            assert_eq!(answer["key"], format!("user-{number}"));
        }
        assert_eq!(store.peak.load(Ordering::SeqCst), MAX_CONCURRENT_CHECKS);
    }
}
