//! `POST /console/api/simulate`: policies on simulated traffic.

mod experiment;
mod request;
mod response;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use self::{
    experiment::{Experiment, Pace},
    request::SimulateRequest,
};
use crate::{api_error::ApiError, app::App, json_body, json_object::Object};

/// One simulation at a time: it keeps a processor busy, and requests come first.
static TURN: Semaphore = Semaphore::const_new(1);

/// A caller waits this long for its turn. It is longer than a simulation takes.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// A simulation takes at most this long.
const MAX_TIME: Duration = Duration::from_secs(2);

/// A trace of 1 MiB, of which half is escaped in JSON.
const MAX_BODY: usize = 2 * (1 << 20) + (1 << 16);

pub(super) fn routes() -> Router<App> {
    Router::new().route("/console/api/simulate", post(simulate))
}

/// Simulates on a blocking thread, with a store and a clock of its own.
async fn simulate(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let body = json_body::read_up_to(&app, MAX_BODY, &parts.headers, body).await?;
    let Object(request): Object<SimulateRequest> = json_body::parse(&body)?;
    let turn = take_turn(MAX_WAIT).await?;
    let is_dropped = Arc::new(AtomicBool::new(false));
    let mark = MarkOnDrop(Arc::clone(&is_dropped));
    let runtime = Handle::current();
    let simulated = tokio::task::spawn_blocking(move || {
        // The turn ends with the work, also if the caller has left.
        let _turn = turn;
        let pace = Pace {
            deadline: Instant::now() + MAX_TIME,
            is_dropped,
        };
        let experiment = Experiment::new(request)?;
        let answer = runtime.block_on(experiment.run(&pace))?;
        serde_json::to_vec(&answer).map_err(|_| failed())
    });
    let simulated = simulated.await;
    drop(mark);
    let answer = simulated.unwrap_or_else(|_| Err(failed()))?;
    Ok(([(CONTENT_TYPE, "application/json")], answer).into_response())
}

/// Waits until no other simulation runs. It is a 503 if that takes too long.
async fn take_turn(max_wait: Duration) -> Result<SemaphorePermit<'static>, ApiError> {
    match timeout(max_wait, TURN.acquire()).await {
        Ok(Ok(turn)) => Ok(turn),
        _ => Err(ApiError::busy(
            "another simulation is running, and a server runs one at a time",
        )),
    }
}

/// Tells the thread that its caller has left.
struct MarkOnDrop(Arc<AtomicBool>);

impl Drop for MarkOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn failed() -> ApiError {
    ApiError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "Simulation failed",
        "see the log of the server",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_simulation_waits_for_the_first_and_not_forever() {
        let first = take_turn(MAX_WAIT).await.unwrap();

        let refused = take_turn(Duration::ZERO).await.unwrap_err();
        let (second, ()) = tokio::join!(take_turn(MAX_WAIT), async { drop(first) });

        assert!(refused.detail().contains("one at a time"), "{refused:?}");
        assert_eq!(refused.into_response().headers()["retry-after"], "1");
        assert!(second.is_ok());
    }
}
