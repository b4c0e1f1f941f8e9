//! `cargo run -p ratelimit-examples --bin jobs`: a worker limits jobs by tenant, and puts a denied job back until it fits.

use std::{collections::BTreeMap, time::Duration};

use ratelimit_core::{Decision, InvalidKey, Key, Limiter, Policy};
use tokio::time::{Instant, sleep_until};

struct Job {
    tenant: &'static str,
    /// Cost of the job: what it will make the database, the printer or the model do.
    pages: u64,
}

enum Turn {
    Run,
    PutBack(Duration),
    Reject,
}

async fn turn(limiter: &Limiter, policy: &Policy, job: &Job) -> Result<Turn, InvalidKey> {
    let tenant = Key::tagged("tenant", job.tenant)?;
    let verdict = limiter.check_cost(policy, &tenant, job.pages).await;
    if verdict.is_allowed() {
        return Ok(Turn::Run);
    }
    let retry_after = verdict.decision().map(Decision::retry_after);
    Ok(match retry_after {
        Some(Some(retry_after)) => Turn::PutBack(retry_after),
        // The job costs more than the limit can hold. It would be put back for ever.
        Some(None) => Turn::Reject,
        // Redis does not answer, and the failure mode is closed.
        None => Turn::PutBack(Duration::from_secs(1)),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::in_memory();
    let policy = Policy::parse("print", "4/s burst 4")?;

    // A queue in order of time. A real one has a column `run_at`, or messages with a delay.
    let mut queue = BTreeMap::new();
    for number in 0..7 {
        let (tenant, pages) = match number {
            5 => ("bob", 1),
            6 => ("ann", 9),
            _ => ("ann", 2),
        };
        queue.insert((Instant::now(), number), Job { tenant, pages });
    }

    let (mut done, mut put_back) = (BTreeMap::new(), BTreeMap::new());
    while let Some(((run_at, number), job)) = queue.pop_first() {
        sleep_until(run_at).await;
        match turn(&limiter, &policy, &job).await? {
            Turn::Run => *done.entry(job.tenant).or_insert(0) += 1,
            Turn::Reject => println!("{}: {} pages never fit", job.tenant, job.pages),
            Turn::PutBack(wait) => {
                *put_back.entry(job.tenant).or_insert(0) += 1;
                queue.insert((Instant::now() + wait, number), job);
            }
        }
    }
    for (tenant, done) in done {
        let word = if put_back.contains_key(tenant) {
            "some of them later"
        } else {
            "at once"
        };
        println!("{tenant}: {done} done, {word}");
    }
    Ok(())
}
