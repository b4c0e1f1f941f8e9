//! One budget for all workers of a server.

use std::{
    collections::HashMap,
    panic::Location,
    sync::{LazyLock, Mutex, PoisonError},
    thread,
};

use ratelimit_core::Limiter;

/// What is the same in each worker's copy of one middleware: the server, the line that makes it,
/// and its policy.
type Place = (String, &'static Location<'static>, String);

static LIMITERS: LazyLock<Mutex<HashMap<Place, Limiter>>> = LazyLock::new(Mutex::default);

/// The limiter that the first worker made at this line, in place of this worker's own.
///
/// A middleware that is made inside the closure of `HttpServer::new` is made once for each worker.
/// Outside of workers `limiter` comes back as it is.
pub(crate) fn shared(
    limiter: Limiter,
    line: &'static Location<'static>,
    policy: String,
) -> Limiter {
    let Some(server) = server_of_this_worker() else {
        return limiter;
    };
    let mut limiters = LIMITERS.lock().unwrap_or_else(PoisonError::into_inner);
    let of_all = limiters.entry((server, line, policy)).or_insert(limiter);
    of_all.clone()
}

/// What all workers of a server have in common, told by the name of their thread.
///
/// `actix-rt|system:0|arbiter:3` under an actix system, `actix-server worker 3` under plain tokio.
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
    use super::*;

    #[test]
    fn only_workers_share() {
        let server_of = |thread: &str| {
            let builder = thread::Builder::new().name(thread.to_owned());
            let found = builder.spawn(server_of_this_worker).unwrap();
            found.join().unwrap()
        };

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
