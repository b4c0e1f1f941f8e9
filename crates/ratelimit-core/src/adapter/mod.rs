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
//!                    Settings::start, Settings::judge, Settings::tell
//! ```
//!
//! A request is decided in three steps. [`Settings::start`] says from its head alone whether it
//! passes, is refused, or what it spends of which budget. [`Settings::judge`] says what follows
//! from the limiter's verdict. [`Settings::tell`] writes that into the response. Between the steps
//! an adapter calls the limiter, waits, and calls the service.

mod client_key;
mod combine;
mod decide;
mod framework;
mod limit_fields;
mod named_key;
mod no_key;
mod rejection;
mod request_key;
mod settings;

pub use self::{
    client_key::ClientKey,
    combine::{Both, Either, OrShared},
    decide::Start,
    framework::{Framework, HeaderFields, RequestHead},
    limit_fields::{LimitFields, is_refusal},
    named_key::{ApiKey, CookieKey, HeaderKey, QueryKey},
    no_key::NoKey,
    rejection::{Cause, Rejection},
    request_key::{MethodKey, PathKey},
    settings::{Mode, Preflight, Settings},
};
