//! Whose budget a connection spends.

use http::{Request, StatusCode};
use ratelimit_http::client_ip::TrustedProxies;
use ratelimit_tower::ClientKey;

use crate::server::{Asker, BOTH, clock, layer, number, serve};

#[tokio::test]
async fn a_changing_forwarded_address_of_an_untrusted_peer_is_one_budget() {
    for version in BOTH {
        let server = serve("127.0.0.1", layer(&clock(), "2/min")).await;
        let asker = Asker::new(version, server);

        let mut passed = 0;
        for number in 0..20 {
            let forged = format!("198.51.100.{number}");
            let request = Request::get(asker.uri("/"))
                .header("x-forwarded-for", &forged)
                .header("x-real-ip", &forged)
                .header("forwarded", format!("for={forged}"));
            passed += u32::from(asker.ask(request).await.status() == StatusCode::OK);
        }

        assert_eq!(passed, 2);
    }
}

#[tokio::test]
async fn clients_of_ipv4_at_a_server_of_ipv6_have_a_budget_each() {
    let mut server = serve("::", layer(&clock(), "2/min")).await;
    server.set_ip([127, 0, 0, 1].into());

    for source in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
        let asker = Asker::from(source, server);
        for remaining in [1, 0, 0] {
            let response = asker.get("/").await;
            assert_eq!(number(&response, "x-ratelimit-remaining"), Some(remaining));
        }
        assert_eq!(asker.get("/").await.status(), StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn an_address_is_one_client_with_any_port() {
    let proxies = TrustedProxies::parse(["127.0.0.1"]).expect("an address");
    let layer = layer(&clock(), "4/min").key_by(ClientKey::behind(proxies));
    let asker = Asker::new(BOTH[0], serve("127.0.0.1", layer).await);
    let spellings = [
        "203.0.113.7",
        "203.0.113.7:4711",
        "[::ffff:203.0.113.7]:80",
        "6.6.6.6, 203.0.113.7:1",
        "::ffff:cb00:7107",
    ];

    let mut statuses = Vec::new();
    for spelling in spellings {
        let request = Request::get(asker.uri("/")).header("x-forwarded-for", spelling);
        statuses.push(asker.ask(request).await.status().as_u16());
    }

    assert_eq!(statuses, [200, 200, 200, 200, 429]);
}
