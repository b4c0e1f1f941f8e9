//! Login, sign-up and comments.

use ratelimit_http::policy::HttpPolicy;

use super::site::{Site, With, policy};
use crate::{
    client::{ask, get},
    server::BOTH,
};

fn login() -> HttpPolicy {
    policy("3/min").with_charge_on("401".parse().expect("statuses"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn login_counts_failed_attempts_only() {
    for framework in BOTH {
        let server = Site::new(login()).serve(framework).await;

        for _ in 0..5 {
            let answer = get(server, "/status/204").await;
            assert_eq!(answer.status, 204, "{framework:?}");
            // The head tells the state after the charge, which is given back afterwards.
            assert_eq!(answer.field("x-ratelimit-remaining"), Some("2"));
        }
        for left in ["2", "1", "0"] {
            let answer = get(server, "/status/401").await;
            assert_eq!(answer.status, 401, "{framework:?}");
            assert_eq!(answer.field("x-ratelimit-remaining"), Some(left));
        }
        assert_eq!(get(server, "/status/401").await.status, 429);
        assert_eq!(get(server, "/status/204").await.status, 429);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn login_counts_errors_of_an_inner_middleware() {
    for framework in BOTH {
        let server = Site::new(login()).serve(framework).await;

        let mut statuses = Vec::new();
        for path in ["/", "/guarded", "/guarded", "/", "/guarded", "/guarded"] {
            statuses.push(get(server, path).await.status);
        }

        assert_eq!(statuses, [200, 401, 401, 200, 401, 429], "{framework:?}");

        let other = policy("1/min").with_charge_on("5xx".parse().expect("statuses"));
        let server = Site::new(other).serve(framework).await;
        for _ in 0..3 {
            assert_eq!(get(server, "/guarded").await.status, 401, "{framework:?}");
        }
    }
}

/// An address signs up three times a day, a burst from all of them is bounded too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_up_is_limited_by_address_and_in_all() {
    for framework in BOTH {
        let limits = "fixed_window 2/d; fixed_window 3/min by global";
        let server = Site::of(limits).serve(framework).await;
        let from = async |address: &str| {
            let field = format!("x-forwarded-for: {address}");
            ask(server, "POST /", &[&field]).await.status
        };

        assert_eq!(from("203.0.113.1").await, 200, "{framework:?}");
        assert_eq!(from("203.0.113.1").await, 200);
        assert_eq!(from("203.0.113.1").await, 429);
        assert_eq!(from("203.0.113.2").await, 200);
        assert_eq!(from("203.0.113.3").await, 429);
    }
}

/// Who comments is counted by account, and by address where nobody has logged in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comments_are_counted_by_user_or_else_by_address() {
    for framework in BOTH {
        let site = Site::of("5/min; 2/min by user").with(With::UserNamed);
        let server = site.serve(framework).await;
        let comment = async |fields: &[&str]| ask(server, "POST /", fields).await.status;

        assert_eq!(comment(&["x-user: alice"]).await, 200, "{framework:?}");
        assert_eq!(comment(&["x-user: alice"]).await, 200);
        assert_eq!(comment(&["x-user: alice"]).await, 429);
        // Without a user the main key, the address, stands in its place.
        assert_eq!(comment(&[]).await, 200);
        assert_eq!(comment(&[]).await, 200);
        assert_eq!(comment(&[]).await, 429);
        assert_eq!(comment(&["x-user: bob"]).await, 200);
        // The five of this address are spent.
        assert_eq!(comment(&["x-user: bob"]).await, 429);
        // A name that was sent twice is no name.
        assert_eq!(comment(&["x-user: a", "x-user: b"]).await, 400);
    }
}
