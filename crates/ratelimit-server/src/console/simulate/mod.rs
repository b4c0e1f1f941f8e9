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
    extract::Request,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use tokio::{runtime::Handle, sync::Semaphore, time::timeout};

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
async fn simulate(request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let body = json_body::read_up_to(MAX_BODY, &parts.headers, body).await?;
    let Object(request): Object<SimulateRequest> = json_body::parse(&body)?;
    let Ok(Ok(turn)) = timeout(MAX_WAIT, TURN.acquire()).await else {
        return Err(busy());
    };
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

/// Tells the thread that its caller has left.
struct MarkOnDrop(Arc<AtomicBool>);

impl Drop for MarkOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn busy() -> ApiError {
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "Busy",
        "another simulation is running, and a server runs one at a time",
    )
}

fn failed() -> ApiError {
    ApiError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "Simulation failed",
        "see the log of the server",
    )
}
