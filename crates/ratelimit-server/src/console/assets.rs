//! The files of the page.

use std::borrow::Cow;

use axum::{
    Router,
    body::Body,
    extract::Path,
    http::{
        HeaderMap, HeaderValue, Response, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION},
    },
    response::IntoResponse,
    routing::get,
};
use sha2::{Digest as _, Sha256};

use super::squeeze::squeeze;
use crate::{api_error::ApiError, app::App, hex::to_hex};

const INDEX: &str = "index.html";

/// The files of the directory `console` of this crate, embedded without their comments.
macro_rules! assets {
    ($($name:literal)*) => {
        [$(Asset {
            name: $name,
            bytes: {
                const TEXT: &[u8] = include_bytes!(concat!("../../console/", $name));
                const LENGTH: usize = squeeze(TEXT, &mut []);
                const SQUEEZED: [u8; LENGTH] = {
                    let mut out = [0; LENGTH];
                    squeeze(TEXT, &mut out);
                    out
                };
                &SQUEEZED
            },
        }),*]
    };
}

static ASSETS: &[Asset] = &assets![
    "index.html"
    "console.css"
    "icon.svg"
    "api.js"
    "cells.js"
    "chart.js"
    "client_key.js"
    "console.js"
    "dom.js"
    "file.js"
    "format.js"
    "key.js"
    "live.js"
    "overview.js"
    "policies.js"
    "session.js"
    "try.js"
];

/// One file of the page.
struct Asset {
    name: &'static str,
    bytes: &'static [u8],
}

impl Asset {
    fn named(name: &str) -> Option<&'static Asset> {
        ASSETS.iter().find(|asset| asset.name == name)
    }

    /// The contents. A debug build reads the file, so that an edited page needs no build.
    fn contents(&self) -> Cow<'static, [u8]> {
        #[cfg(debug_assertions)]
        if let Ok(edited) = std::fs::read(format!(
            concat!(env!("CARGO_MANIFEST_DIR"), "/console/{}"),
            self.name
        )) {
            let mut squeezed = vec![0; squeeze(&edited, &mut [])];
            squeeze(&edited, &mut squeezed);
            return squeezed.into();
        }
        self.bytes.into()
    }

    fn content_type(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }
}

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/console", get(redirect))
        .route("/console/", get(index))
        .route("/console/{file}", get(file))
}

/// Redirects to `/console/`. The address is relative, so a proxy may have removed a prefix.
async fn redirect() -> impl IntoResponse {
    (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, "console/")])
}

async fn index(headers: HeaderMap) -> Result<Response<Body>, ApiError> {
    respond(INDEX, &headers)
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Result<Response<Body>, ApiError> {
    respond(&name, &headers)
}

/// The file, or 304 if the client has it. Clients ask each time, so a new server shows its own page at once.
fn respond(name: &str, request_headers: &HeaderMap) -> Result<Response<Body>, ApiError> {
    let asset = Asset::named(name).ok_or_else(ApiError::not_found)?;
    let contents = asset.contents();
    let tag = entity_tag(&contents);
    let is_known = matches(request_headers, &tag);
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Response::new(Body::from(contents))
    };
    let headers = response.headers_mut();
    if !is_known {
        let content_type = HeaderValue::from_static(asset.content_type());
        headers.insert(CONTENT_TYPE, content_type);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let tag = HeaderValue::try_from(tag).expect("hexadecimal digits are a header value");
    headers.insert(ETAG, tag);
    Ok(response)
}

/// The first 16 digits of the SHA-256 digest, quoted.
fn entity_tag(contents: &[u8]) -> String {
    format!("\"{}\"", to_hex(&Sha256::digest(contents)[..8]))
}

/// Whether `If-None-Match` lists the tag.
fn matches(headers: &HeaderMap, tag: &str) -> bool {
    let lines = headers.get_all(IF_NONE_MATCH).iter();
    let mut tags = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    tags.any(|known| {
        let known = known.trim_ascii();
        known == b"*" || known.strip_prefix(b"W/").unwrap_or(known) == tag.as_bytes()
    })
}
