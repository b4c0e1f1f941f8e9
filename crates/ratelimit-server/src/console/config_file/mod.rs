//! The policy file: its text, its findings, and a reload.

mod changes;

use std::{
    fmt::Write as _,
    fs::{self, File, Metadata},
    io::{self, Read as _},
    path::Path,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
    routing::{get, post},
};
use ratelimit_core::Policy;
use ratelimit_http::policy_file::Format;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::timeout,
};

use self::changes::Changes;
use super::access;
use crate::{
    api_error::ApiError,
    app::App,
    audit::Audit,
    config::ReloadableConfig,
    config_check::ConfigCheck,
    file_read::check_regular,
    finding::Finding,
    hex::to_hex,
    json_body::{parse, read_up_to},
    json_object::Object,
    json_response::json,
    redact::{has_hidden_rule, redact_file},
};

/// The longest text of a file, in bytes.
const MAX_TEXT: usize = 1 << 20;
/// The longest body: a text with many line ends and quotes is longer as JSON.
const MAX_BODY: usize = 4 * MAX_TEXT;
/// A caller waits this long until no other text is checked.
const MAX_WAIT: Duration = Duration::from_secs(3);

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/console/api/config", get(config))
        .route("/console/api/check-config", post(check_config))
        .route("/console/api/reload", post(reload))
}

/// The text of the configuration file.
#[derive(Serialize)]
struct ConfigText {
    /// `None` if the server has no file.
    path: Option<String>,
    format: &'static str,
    text: String,
    etag: String,
    writable: bool,
    /// The text is left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hidden: bool,
    /// Why the text is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

async fn config(State(app): State<App>) -> Result<Response<Body>, ApiError> {
    let Some(path) = app.config_state().file().map(Path::to_owned) else {
        return Ok(json(
            StatusCode::OK,
            &ConfigText::without_file(&app.rules()),
        ));
    };
    let room = take_room(
        &app.config_state().read_room,
        MAX_WAIT,
        "the file is being read, which takes long: its file system may hang",
    );
    let room = room.await?;
    let read = spawn_blocking(move || {
        let _room = room;
        ConfigText::read(&path)
    });
    let read = read.await;
    let text = read.map_err(|_| failed("the file could not be read"))?;
    let text = text.map_err(|why| failed(format!("the file cannot be read: {why}")))?;
    Ok(json(StatusCode::OK, &text))
}

impl ConfigText {
    fn read(path: &Path) -> io::Result<ConfigText> {
        check_regular(&fs::metadata(path)?)?;
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        check_regular(&metadata)?;
        let mut bytes = Vec::new();
        file.take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes)?;
        let format = Format::of(path).unwrap_or(Format::Toml);
        let text = shown_text(bytes, format);
        let reason = text.as_ref().err().copied();
        let text = text.unwrap_or_default();
        let etag = etag(&text, Some(&metadata));
        Ok(ConfigText {
            path: Some(path.display().to_string()),
            format: format_name(format),
            hidden: reason.is_some(),
            reason,
            text,
            etag,
            writable: false,
        })
    }

    /// The policies of flags and environment, as the beginning of a file.
    fn without_file(rules: &ReloadableConfig) -> ConfigText {
        let configured = rules.policies.iter();
        let configured = configured.filter(|policy| !rules.policies.is_built_in(policy.name()));
        let mut text = "[policy]\n".to_owned();
        for policy in configured {
            write_policy(&mut text, policy);
        }
        ConfigText {
            path: None,
            format: format_name(Format::Toml),
            etag: etag(&text, None),
            text,
            writable: false,
            hidden: false,
            reason: None,
        }
    }
}

/// The text of a file without its secrets, or why it is not shown.
fn shown_text(bytes: Vec<u8>, format: Format) -> Result<String, &'static str> {
    if bytes.len() > MAX_TEXT {
        return Err("the file is longer than 1 MiB");
    }
    let text = String::from_utf8(bytes).map_err(|_| "the file is not UTF-8")?;
    redact_file(&text, format).ok_or(
        "the file may contain a secret in a form that is not recognised, such as with escapes",
    )
}

/// Flags give a name and limits. Neither contains quotes or backslashes.
fn write_policy(text: &mut String, policy: &Policy) {
    // Writing to a text cannot fail.
    let _ = writeln!(text, "\"{}\" = \"{policy}\"", policy.name());
}

/// The version of a text as it is shown. The file's length and time stand for what is hidden in it: a digest of a password
/// would let its reader guess the password.
fn etag(text: &str, file: Option<&Metadata>) -> String {
    let modified = file.and_then(|file| file.modified().ok());
    let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let length = file.map_or(0, Metadata::len);
    let stamp = format!("{length} {}", modified.unwrap_or_default().as_nanos());
    let digest = Sha256::new()
        .chain_update(stamp)
        .chain_update(text)
        .finalize();
    format!("\"{}\"", to_hex(&digest[..8]))
}

const fn format_name(format: Format) -> &'static str {
    match format {
        Format::Yaml => "yaml",
        _ => "toml",
    }
}

fn failed(detail: impl Into<String>) -> ApiError {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    ApiError::new(status, "Not available", detail)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckConfigRequest {
    format: FormatName,
    text: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FormatName {
    Toml,
    Yaml,
}

#[derive(Serialize)]
struct CheckConfigResponse {
    ok: bool,
    findings: Vec<Finding>,
    changes: Changes,
}

/// Checks a text. Texts are checked one at a time, by a thread that may block.
async fn check_config(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = read_up_to(&app, MAX_BODY, &parts.headers, body).await?;
    let Object(call): Object<CheckConfigRequest> = parse(&bytes)?;
    if call.text.len() > MAX_TEXT {
        let (status, detail) = (StatusCode::PAYLOAD_TOO_LARGE, "the text has at most 1 MiB");
        return Err(ApiError::new(status, "Body too large", detail));
    }
    let room = take_room(
        &app.config_state().check_room,
        MAX_WAIT,
        "another text is being checked, and a server checks one at a time",
    );
    let room = room.await?;
    let checked = spawn_blocking(move || {
        // The room is left when the check ends, also if its caller has left before.
        let _room = room;
        check(&app, &call)
    });
    let response = checked.await.map_err(|_| failed("the check has failed"))?;
    Ok(json(StatusCode::OK, &response))
}

/// Waits until nobody else has the room. It is a 503 with the text `busy` if that takes too long.
async fn take_room(
    room: &Arc<Semaphore>,
    max_wait: Duration,
    busy: &'static str,
) -> Result<OwnedSemaphorePermit, ApiError> {
    match timeout(max_wait, Arc::clone(room).acquire_owned()).await {
        Ok(Ok(room)) => Ok(room),
        _ => Err(ApiError::busy(busy)),
    }
}

fn check(app: &App, call: &CheckConfigRequest) -> CheckConfigResponse {
    let format = match call.format {
        FormatName::Toml => Format::Toml,
        FormatName::Yaml => Format::Yaml,
    };
    let running = app.rules();
    let checked = ConfigCheck::new(&call.text, format, &running, app.config_state());
    let changes = checked.rules.as_ref().map(|rules| {
        let has_hidden = has_hidden_rule(&call.text, format);
        let changes = Changes::new(&running, rules, has_hidden);
        changes
            .with_needs_restart(checked.needs_restart)
            .with_envoy(&checked.envoy.0, &checked.envoy.1)
    });
    CheckConfigResponse {
        ok: checked.rules.is_some(),
        findings: checked.findings,
        changes: changes.unwrap_or_default(),
    }
}

#[derive(Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
enum ReloadResponse {
    Ok { policies: usize },
    Rejected { findings: Vec<Finding> },
}

/// Reads the file again, as SIGHUP does, and waits for the result.
async fn reload(State(app): State<App>, request: Request) -> Result<Response<Body>, ApiError> {
    let caller = access::admit_change(&app, &app.rules(), &request)?;
    let mut audit = Audit::new("reload", caller, &request);
    let Some(handle) = app.config_state().reload() else {
        return Err(failed("this server does not reload its configuration"));
    };
    match handle.reload().await {
        Some(Ok(policies)) => {
            audit.succeed();
            Ok(json(StatusCode::OK, &ReloadResponse::Ok { policies }))
        }
        Some(Err(findings)) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            Ok(json(status, &ReloadResponse::Rejected { findings }))
        }
        None => Err(failed("the server ends")),
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    #[test]
    fn a_text_that_is_not_shown_has_a_reason() {
        let reason = |bytes: &[u8]| shown_text(bytes.to_vec(), Format::Toml).unwrap_err();

        assert!(reason(&vec![b'#'; MAX_TEXT + 1]).contains("1 MiB"));
        assert!(reason(b"# \xFF").contains("UTF-8"));
        assert!(reason(b"a = [\"\\u0073ecret:api-key:s3cr3t\"]").contains("secret"));
        let shown = shown_text(b"listen = 'a'".to_vec(), Format::Toml);
        assert_eq!(shown.as_deref(), Ok("listen = 'a'"));
    }

    #[tokio::test]
    async fn a_second_check_waits_for_the_first_and_not_forever() {
        let room = Arc::new(Semaphore::new(1));
        let first = take_room(&room, MAX_WAIT, "one at a time").await.unwrap();

        let refused = take_room(&room, Duration::ZERO, "one at a time")
            .await
            .unwrap_err();
        let (second, ()) = tokio::join!(take_room(&room, MAX_WAIT, "one at a time"), async {
            drop(first);
        });

        assert!(refused.detail().contains("one at a time"), "{refused:?}");
        assert_eq!(refused.into_response().headers()["retry-after"], "1");
        assert!(second.is_ok());
    }
}
