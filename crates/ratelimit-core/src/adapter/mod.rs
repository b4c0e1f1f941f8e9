//! What all adapters of HTTP frameworks share: for those who write one, and for nobody else.
//!
//! Frameworks keep requests and header fields in types of their own. An adapter tells the engine
//! how to read and write those, by three small traits, and every rule lives here:
//!
//! ```text
//! RequestHead    a request: method, path, query, header lines, peer, explicit key
//!      |             read by the key sources (ClientKey, ApiKey, ...) and the rules of Settings
//! HeaderFields   a header map, with its names and values
//!      |             written by LimitFields and Rejection
//! Framework      both, and the type of an answer
//!                    Settings::decide, Settings::judge, Settings::finish
//! ```
//!
//! A request takes three steps. [`Settings::decide`] says from its head alone whether it passes or is
//! refused, and else asks the limiter. [`Settings::judge`] says what follows from an answer that was not
//! there at once. [`Settings::finish`] settles by the head of the response, writes its fields, and leaves
//! what is [`Held`] until the body ends. Between the steps an adapter waits, and calls the service.

mod ask;
mod client_key;
mod combine;
mod decide;
mod framework;
mod handler_terms;
mod held;
mod key_names;
mod limit_fields;
mod named_key;
mod no_key;
mod passage;
mod rejection;
mod request_key;
mod settings;
mod telling;
mod terms;

pub use self::{
    ask::{Asked, Asking},
    client_key::ClientKey,
    combine::{Both, Either, OrShared},
    decide::Way,
    framework::{Framework, HeaderFields, RequestHead},
    handler_terms::HandlerTerms,
    held::{Held, Slot},
    key_names::{UnknownKeyName, Whereabouts},
    limit_fields::{LimitFields, is_refusal},
    named_key::{ApiKey, CookieKey, HeaderKey, QueryKey},
    no_key::NoKey,
    passage::Passage,
    rejection::{Cause, Rejection},
    request_key::{MethodKey, PathKey},
    settings::{Preflight, Settings},
};
