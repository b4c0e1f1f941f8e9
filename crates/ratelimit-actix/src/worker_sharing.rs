//! One limiter for all workers of a server.
//!
//! actix-web calls the closure of `HttpServer::new` once per worker, so a limiter that is made inside would
//! count per worker. Workers that make a limiter at the same line with the same limits share one.

use std::{
    collections::HashMap,
    panic::Location,
    sync::{Arc, LazyLock, Mutex, MutexGuard, Once, PoisonError, Weak},
    thread,
};

use ratelimit_core::Limiter;

/// Identifies each worker's copy of one middleware: the server, the line that makes it, and its limits.
type CallSite = (String, &'static Location<'static>, String);

static LIMITERS: LazyLock<Mutex<HashMap<CallSite, Weak<SharedLimiter>>>> =
    LazyLock::new(Mutex::default);

/// A limiter in memory that the workers of a server share.
///
/// Its entry is removed when the last middleware and service that use it are dropped.
#[derive(Debug)]
pub(crate) struct SharedLimiter {
    limiter: Limiter,
    site: CallSite,
}

impl SharedLimiter {
    pub(crate) fn limiter(&self) -> Limiter {
        self.limiter.clone()
    }
}

impl Drop for SharedLimiter {
    fn drop(&mut self) {
        let mut limiters = lock();
        // Another worker may have inserted a new limiter since the last reference to this one was dropped.
        if limiters
            .get(&self.site)
            .is_some_and(|entry| entry.strong_count() == 0)
        {
            limiters.remove(&self.site);
        }
    }
}

/// The limiter that the first worker made at this line for these limits.
///
/// It is `None` outside of workers, where there is nothing to share.
pub(crate) fn share_between_workers(
    line: &'static Location<'static>,
    limits: &str,
) -> Option<Arc<SharedLimiter>> {
    let site = (server_of_this_worker()?, line, limits.to_owned());
    let mut limiters = lock();
    if let Some(known) = limiters.get(&site).and_then(Weak::upgrade) {
        return Some(known);
    }
    let shared = Arc::new(SharedLimiter {
        limiter: Limiter::in_memory(),
        site: site.clone(),
    });
    limiters.insert(site, Arc::downgrade(&shared));
    Some(shared)
}

/// Logs once that a worker made a limiter in memory for itself, so that each worker counts on its own.
pub(crate) fn warn_once_if_unshared(limiter: &Limiter) {
    static WARNED: Once = Once::new();
    if !is_unshared(limiter) {
        return;
    }
    WARNED.call_once(|| {
        let warning = "a limiter in memory is made inside the closure of HttpServer::new: each worker \
                       has budgets of its own, and together they let pass as many times the limit; \
                       make the limiter outside of the closure and clone it inside";
        tracing::warn!("{warning}");
        if !tracing::dispatcher::has_been_set() {
            eprintln!("rate limit: {warning}");
        }
    });
}

fn is_unshared(limiter: &Limiter) -> bool {
    limiter.is_unshared_memory() && server_of_this_worker().is_some()
}

fn lock() -> MutexGuard<'static, HashMap<CallSite, Weak<SharedLimiter>>> {
    LIMITERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server of this worker thread, by the name of the thread; `None` in other threads.
///
/// Threads are called `actix-rt|system:0|arbiter:3` under an actix system and `actix-server worker 3` under
/// plain tokio.
fn server_of_this_worker() -> Option<String> {
    let thread = thread::current();
    let name = thread.name()?;
    if let Some((system, _)) = name.split_once("|arbiter:") {
        return system.starts_with("actix-rt|").then(|| system.to_owned());
    }
    let (worker, _) = name.rsplit_once(' ')?;
    (worker == "actix-server worker").then(|| worker.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use ratelimit_core::{Key, Policy};

    use super::*;
    use crate::RateLimit;

    fn in_worker<T: Send + 'static>(number: u8, work: impl FnOnce() -> T + Send + 'static) -> T {
        in_thread(&format!("actix-server worker {number}"), work)
    }

    fn in_thread<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
        let builder = thread::Builder::new().name(name.to_owned());
        builder.spawn(work).unwrap().join().unwrap()
    }

    /// Spends one unit of a key's budget of 1.
    fn passes(limit: &RateLimit) -> bool {
        let policy = Policy::parse("client", "1/h").unwrap();
        let key = Key::new("alice").unwrap();
        let check = pin!(limit.limiter().check(&policy, &key));
        match check.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(verdict) => verdict.is_allowed(),
            Poll::Pending => unreachable!("memory answers at once"),
        }
    }

    fn with_own_limiter() -> RateLimit {
        RateLimit::new(
            Limiter::in_memory(),
            Policy::parse("client", "1/h").unwrap(),
        )
    }

    #[test]
    fn a_limiter_that_is_given_is_used() {
        let [one, other] = in_worker(0, || [with_own_limiter(), with_own_limiter()]);

        assert!(
            passes(&one) && passes(&other),
            "each scope has its own budget"
        );
        assert!(!passes(&one) && !passes(&other));
    }

    #[test]
    fn workers_share_what_per_client_makes_at_one_line_until_all_of_it_is_dropped() {
        // No other test has these limits.
        let make = || RateLimit::per_client("1/7h").unwrap();
        let entries = || {
            let limiters = lock();
            limiters
                .keys()
                .filter(|(_, _, limits)| limits.contains("1/7h"))
                .count()
        };
        let limits = [0, 1].map(|worker| in_worker(worker, make));
        assert_eq!(entries(), 1);

        assert!(passes(&limits[0].clone().mark_responses()));
        assert!(!passes(&limits[1]), "one budget");
        drop(limits);

        assert_eq!(entries(), 0);
        let again = in_worker(0, make);
        assert!(passes(&again), "a new budget");
        drop(again);
        assert_eq!(entries(), 0);
    }

    #[test]
    fn a_limiter_of_one_worker_is_distinguished_from_a_shared_one() {
        let outside = Limiter::in_memory();
        let cloned = outside.clone();

        assert!(in_worker(0, || is_unshared(&Limiter::in_memory())));
        assert!(!in_worker(0, move || is_unshared(&cloned)));
        let cloned = outside.clone().without_deny_cache();
        assert!(!in_worker(0, move || is_unshared(&cloned)));
        assert!(!in_thread("main", || is_unshared(&Limiter::in_memory())));
        drop(outside);
    }

    #[test]
    fn only_workers_share() {
        let server_of = |thread: &str| in_thread(thread, server_of_this_worker);

        assert_eq!(
            server_of("actix-rt|system:2|arbiter:5").as_deref(),
            Some("actix-rt|system:2")
        );
        assert_eq!(
            server_of("actix-server worker 0"),
            server_of("actix-server worker 1")
        );
        assert_eq!(server_of("main"), None);
    }
}
