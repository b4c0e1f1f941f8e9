//! The guides of docs/guides: their commands are typed, and their warnings hold.

#[path = "../example/mod.rs"]
mod example;
mod llm;
mod page;
mod proxy;
mod proxy_process;
mod redis_away;
mod uploads;
mod websockets;

use page::{Page, TypedPage};

#[test]
fn login_commands_answer_as_the_page_says() {
    assert_eq!(TypedPage::of("login").blocks, 3);
}

#[test]
fn tiers_commands_answer_as_the_page_says() {
    let typed = TypedPage::of("tiers");

    assert_eq!(typed.blocks, 2);
    let page = Page::open("tiers");
    assert_eq!(
        typed.log(),
        page.first("log"),
        "one query for each customer"
    );
}

/// Whether `holds` comes true within ten seconds, while a server notices that a client hung up.
fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    for _ in 0..500 {
        if holds() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    false
}
