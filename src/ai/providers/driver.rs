//! One request from start to end: credentials, sending, provider-level retries, reading, masking, the terminal event.
//!
//! A stream without a task: all work happens while it is polled, so dropping it drops the connection. Every await can be
//! cancelled; the connection is dropped then and the message says what arrived.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{StatusCode, Url};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::ai::credentials::Credentials;
use crate::ai::http::{self, HttpError, HttpSettings};
use crate::ai::message::StopReason;
use crate::ai::provider::{EventStream, Request, StreamEvent};
use crate::ai::registry::Services;
use crate::ai::retry;
use crate::ai::secrets::Mask;
use crate::ai::sse::{SseEvent, SseParser};
use crate::ai::tap::{self, TapPoint};

use super::assembly::{Assembly, Step};
use super::{Api, Body, Call, Decoder, api, asked_wait, cut_chars};

/// Longest text of a server that an error shows.
const MAX_ERROR_CHARS: usize = 4000;
/// A proxy, not the server behind it, wants to know who asks.
const PROXY_LOGIN: StatusCode = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
/// How long the rest of a complete answer is waited for, so that the connection can be used again.
const DRAIN: Duration = Duration::from_millis(100);

/// Why a request ends early.
enum Stop {
    Aborted,
    Failed {
        text: String,
        retry_after: Option<Duration>,
    },
}

impl Stop {
    fn text(text: impl Into<String>) -> Self {
        Self::Failed {
            text: text.into(),
            retry_after: None,
        }
    }
}

impl From<HttpError> for Stop {
    fn from(error: HttpError) -> Self {
        Self::text(error.to_string())
    }
}

enum Stage {
    Begin,
    Reading(Box<Reading>),
    Over,
}

struct Reading {
    response: reqwest::Response,
    parser: SseParser,
    decoder: Box<dyn Decoder>,
    url: Url,
    proxy: Option<String>,
    found: Vec<SseEvent>,
}

impl Reading {
    /// Takes the next bytes of the body; none: it is over.
    fn fill(&mut self, bytes: Option<&[u8]>) -> Result<(), Stop> {
        match bytes {
            Some(bytes) => self
                .parser
                .push(bytes, &mut self.found)
                .map_err(|error| Stop::text(error.to_string())),
            None => {
                self.found.extend(self.parser.finish());
                Ok(())
            }
        }
    }

    /// Ends the answer after the last event, when none of them did.
    fn end(&mut self, out: &mut Assembly) -> Step {
        match self.decoder.end(out) {
            Step::More => Step::Fail("the stream ended without an end".to_owned()),
            step => step,
        }
    }

    /// Decodes the events that are complete, up to one that ends the answer.
    fn decode(&mut self, out: &mut Assembly) -> Step {
        for event in self.found.drain(..) {
            match self.decoder.event(&event, out) {
                Step::More => {}
                step => return step,
            }
        }
        Step::More
    }
}

struct Driver {
    services: Arc<Services>,
    request: Request,
    settings: HttpSettings,
    mask: Mask,
    out: Assembly,
    stage: Stage,
    /// What is sent: a retry sends the same bytes again.
    packed: Option<reqwest::Request>,
    began: Instant,
}

/// Starts a request over a wire API.
pub(crate) fn stream(services: Arc<Services>, request: Request) -> EventStream {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let settings = with_overrides(services.settings(), &request);
    let driver = Driver {
        out: Assembly::new(Arc::clone(&request.model), now.as_millis() as i64),
        services,
        settings,
        request,
        mask: Mask::default(),
        stage: Stage::Begin,
        packed: None,
        began: Instant::now(),
    };
    futures::stream::unfold(driver, |mut driver| async move {
        let event = driver.next().await?;
        Some((event, driver))
    })
    .boxed()
}

/// A request's own limits win over the settings.
fn with_overrides(mut settings: HttpSettings, request: &Request) -> HttpSettings {
    let get = |key: &str| request.options.extra.get(key).and_then(Value::as_u64);
    if let Some(retries) = get("maxRetries") {
        settings.max_retries = u32::try_from(retries).unwrap_or(u32::MAX);
    }
    if let Some(delay) = get("maxRetryDelayMs") {
        settings.max_retry_delay = (delay > 0).then(|| Duration::from_millis(delay));
    }
    if let Some(timeout) = get("timeoutMs") {
        settings.header_timeout = Some(Duration::from_millis(timeout));
    }
    settings
}

/// Waits for `work` unless the request is cancelled first.
async fn unless_cancelled<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = T>,
) -> Result<T, Stop> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Stop::Aborted),
        value = work => Ok(value),
    }
}

/// Waits for `work`, at most `limit`.
async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Result<T, Duration> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.map_err(|_| limit),
        None => Ok(work.await),
    }
}

impl Driver {
    async fn next(&mut self) -> Option<StreamEvent> {
        loop {
            if !matches!(self.stage, Stage::Over) && self.request.cancel.is_cancelled() {
                self.finish(Stop::Aborted);
            }
            if let Some(event) = self.out.pop() {
                return Some(event);
            }
            let step = match &mut self.stage {
                Stage::Over => return None,
                Stage::Begin => self.begin().await,
                Stage::Reading(_) => self.read().await,
            };
            if let Err(stop) = step {
                self.finish(stop);
            }
        }
    }

    /// Ends with an error event.
    fn finish(&mut self, stop: Stop) {
        self.stage = Stage::Over;
        self.note_end();
        match stop {
            Stop::Aborted => {
                self.out.clear_events();
                self.out
                    .fail(StopReason::Aborted, "Request was aborted".to_owned());
            }
            Stop::Failed { text, retry_after } => {
                let text = cut_chars(self.mask.apply(&text).trim(), MAX_ERROR_CHARS);
                self.out.message.retry_after_ms = retry_after.map(|wait| wait.as_millis() as u64);
                if let Some(word) = &mut self.out.message.raw_stop_reason {
                    *word = self.mask.apply(word);
                }
                self.out.fail(StopReason::Error, text);
            }
        }
    }

    /// Sends the request until a server accepts it.
    async fn begin(&mut self) -> Result<(), Stop> {
        let model = &self.request.model;
        let Some(api) = api(&model.api) else {
            return Err(Stop::text(format!(
                "the API `{}` of {}/{} is not supported; choose another model",
                model.api, model.provider, model.id
            )));
        };
        let cancel = self.request.cancel.clone();
        let resolve = self.services.credentials(&self.request);
        let credentials = unless_cancelled(&cancel, resolve)
            .await?
            .map_err(Stop::text)?;
        self.mask = credentials.mask.clone();
        let mut call = Call::new(&self.request, self.services.long_cache());
        call.kept = self.services.kept(&self.request);
        call.plain_tools = self.services.plain_tools(&call);
        let mut attempt = 0;
        loop {
            let failure = match self.send(&*api, &mut call, &credentials).await? {
                Sent::Accepted => return Ok(()),
                Sent::Simplified => continue,
                Sent::Failed(failure) => failure,
            };
            let wait = self.wait_for(&failure, attempt)?;
            attempt += 1;
            unless_cancelled(&cancel, tokio::time::sleep(wait)).await?;
        }
    }

    /// Makes up what is sent, and lets a tap change it.
    async fn pack(
        asked: &Request,
        client: &reqwest::Client,
        api: &dyn Api,
        call: &Call,
        credentials: &Credentials,
    ) -> Result<reqwest::Request, Stop> {
        let (cancel, tap) = (&asked.cancel, &asked.options.tap);
        let body = api.build(call).map_err(Stop::text)?;
        let url = request_url(call, &body)?;
        let mut headers = headers(api, &body, credentials, asked)?;
        if let Some(tap) = tap.at(TapPoint::Headers) {
            let changed = unless_cancelled(cancel, tap.headers(tap::shown(&headers))).await?;
            headers = HeaderMap::new();
            for (name, value) in changed.iter().filter(|(_, value)| !value.is_null()) {
                set_header(&mut headers, name, value.as_str().map(str::to_owned))?;
            }
        }
        let bytes = match tap.at(TapPoint::Payload) {
            None => body.bytes(),
            Some(tap) => {
                let json = serde_json::to_value(&body);
                let json = json.map_err(|error| Stop::text(error.to_string()))?;
                serde_json::to_vec(&unless_cancelled(cancel, tap.payload(json)).await?)
            }
        };
        let bytes = bytes.map_err(|error| Stop::text(error.to_string()))?;
        let request = client.post(url).headers(headers).body(bytes).build();
        request.map_err(|error| Stop::text(http::deepest(&error)))
    }

    /// Sends the request once.
    async fn send(
        &mut self,
        api: &dyn Api,
        call: &mut Call,
        credentials: &Credentials,
    ) -> Result<Sent, Stop> {
        let client = self.services.client()?;
        let request = match self.packed.take() {
            Some(request) => request,
            None => Self::pack(&self.request, &client, api, call, credentials).await?,
        };
        // The body is shared, not copied.
        let again = request.try_clone();
        let url = request.url().clone();
        let proxy = self.services.proxy_of(&url)?;
        let send = client.execute(request);
        let limit = self.settings.header_timeout.or(self.settings.idle_timeout);
        let answer = unless_cancelled(&self.request.cancel, within(limit, send)).await?;
        self.packed = again;
        if let Ok(Ok(response)) = &answer {
            Self::hear_response(&self.request, response).await?;
        }
        let error = match (answer, proxy) {
            (Ok(Ok(response)), proxy) if response.status().is_success() => {
                self.accept(response, api.decoder(call), url, proxy);
                return Ok(Sent::Accepted);
            }
            (Ok(Ok(response)), Some(proxy)) if response.status() == PROXY_LOGIN => {
                HttpError::ProxyLogin(proxy)
            }
            (Ok(Ok(response)), _) => return self.refused(api, call, response).await,
            (Ok(Err(error)), proxy) => http::transport_error(&error, &url, proxy.as_deref()),
            (Err(limit), _) => HttpError::Timeout(format!(
                "no response from {} within {} s",
                url.host_str().unwrap_or_default(),
                limit.as_secs_f64()
            )),
        };
        Ok(Sent::Failed(Failure::transport(&error)))
    }

    async fn hear_response(request: &Request, response: &reqwest::Response) -> Result<(), Stop> {
        let Some(tap) = request.options.tap.at(TapPoint::Response) else {
            return Ok(());
        };
        let heard = tap.response(response.status().as_u16(), tap::shown(response.headers()));
        unless_cancelled(&request.cancel, heard).await
    }

    /// Reads what a server says against the request.
    async fn refused(
        &mut self,
        api: &dyn Api,
        call: &mut Call,
        response: reqwest::Response,
    ) -> Result<Sent, Stop> {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = unless_cancelled(&self.request.cancel, http::error_body(response)).await?;
        if api.simplify(call, status, &body) {
            self.services.note_plain_tools(call);
            self.packed = None;
            return Ok(Sent::Simplified);
        }
        Ok(Sent::Failed(Failure {
            text: api.http_error(call, status, &body),
            again: retry::retries_status(status, &headers),
            wait: asked_wait(&headers),
        }))
    }

    /// Returns how long to wait before the next attempt, or the end of all attempts.
    fn wait_for(&self, failure: &Failure, attempt: u32) -> Result<Duration, Stop> {
        let stop = |text: String| Stop::Failed {
            text,
            retry_after: failure.wait,
        };
        if !failure.again || attempt >= self.settings.max_retries {
            return Err(stop(failure.text.clone()));
        }
        let Some(asked) = failure.wait else {
            return Ok(retry::provider_delay(attempt, jitter()));
        };
        match self.settings.max_retry_delay {
            Some(max) if asked > max => Err(stop(format!(
                "{}. The server asks for a {}s retry delay (max: {}s)",
                failure.text.trim_end_matches('.'),
                asked.as_secs_f64().ceil(),
                max.as_secs_f64()
            ))),
            _ => Ok(asked),
        }
    }

    fn accept(
        &mut self,
        response: reqwest::Response,
        decoder: Box<dyn Decoder>,
        url: Url,
        proxy: Option<String>,
    ) {
        self.packed = None;
        self.out.start();
        self.stage = Stage::Reading(Box::new(Reading {
            response,
            parser: SseParser::default(),
            decoder,
            url,
            proxy,
            found: Vec::new(),
        }));
    }

    /// Reads one piece of the body and decodes what it completes.
    async fn read(&mut self) -> Result<(), Stop> {
        let Stage::Reading(reading) = &mut self.stage else {
            return Ok(());
        };
        let next = within(self.settings.idle_timeout, reading.response.chunk());
        let chunk = match unless_cancelled(&self.request.cancel, next).await? {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(error)) => return Err(lost(&error, reading)),
            Err(limit) => {
                let text = format!(
                    "request timed out: the server sent nothing for {} s",
                    limit.as_secs_f64()
                );
                return Err(Stop::text(text));
            }
        };
        reading.fill(chunk.as_deref())?;
        if let Some(tap) = self.request.options.tap.at(TapPoint::StreamEvent) {
            for event in &reading.found {
                if let Ok(data) = serde_json::from_str(&event.data) {
                    let heard = tap.stream_event(&self.request.model, data);
                    unless_cancelled(&self.request.cancel, heard).await?;
                }
            }
        }
        let step = match reading.decode(&mut self.out) {
            Step::More if chunk.is_none() => reading.end(&mut self.out),
            step => step,
        };
        match step {
            Step::More => Ok(()),
            Step::Done => self.complete().await,
            Step::Fail(text) => Err(Stop::text(text)),
        }
    }

    /// Ends well. The rest of the body is read if it is there already: the connection can then be used again.
    async fn complete(&mut self) -> Result<(), Stop> {
        if let Stage::Reading(mut reading) = std::mem::replace(&mut self.stage, Stage::Over) {
            let rest = async { while let Ok(Some(_)) = reading.response.chunk().await {} };
            // Not waited for longer: a server may keep the connection open after its last event.
            within(Some(DRAIN), rest).await.ok();
        }
        self.note_end();
        self.out.done();
        Ok(())
    }

    /// Notes what is known of every answer at its end. The provider's own level (`providerThinkingLevel`) stays unset: it
    /// belongs to changes of effort within a conversation, which are not sent.
    fn note_end(&mut self) {
        let message = &mut self.out.message;
        message.duration_ms = Some(self.began.elapsed().as_millis() as u64);
        message.thinking_level = Some(self.request.options.thinking.as_str().to_owned());
    }
}

/// What came of sending once.
enum Sent {
    /// The answer is being read.
    Accepted,
    /// The server refused what a simpler request avoids, which was noted: to be sent again at once.
    Simplified,
    /// It failed.
    Failed(Failure),
}

/// A refused or failed attempt.
struct Failure {
    text: String,
    again: bool,
    wait: Option<Duration>,
}

impl Failure {
    fn transport(error: &HttpError) -> Self {
        Self {
            text: error.to_string(),
            again: matches!(error, HttpError::Connection(_) | HttpError::Timeout(_)),
            wait: None,
        }
    }
}

/// The words for a body that broke off.
fn lost(error: &reqwest::Error, reading: &Reading) -> Stop {
    let text = match http::transport_error(error, &reading.url, reading.proxy.as_deref()) {
        HttpError::Connection(why) => {
            format!("connection lost while the answer was streaming: {why}")
        }
        other => other.to_string(),
    };
    Stop::text(text)
}

/// A number in 0..1 that differs from call to call.
fn jitter() -> f64 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    (high >> 11) as f64 / (1_u64 << 53) as f64
}

fn request_url(call: &Call, body: &Body) -> Result<Url, Stop> {
    let base = call.model.base_url.trim_end_matches('/');
    let text = format!("{base}{}", body.path);
    let url = Url::parse(&text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| HttpError::Url(base.to_owned()).into())
}

/// Puts the headers together: the API's own, the model's, the provider's with the key, the request's. A later one wins;
/// `null` in the request removes.
fn headers(
    api: &dyn Api,
    body: &Body,
    credentials: &Credentials,
    request: &Request,
) -> Result<HeaderMap, Stop> {
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let own = body
        .headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Some(value.clone())));
    for (name, value) in own.chain(credentials.headers(api)) {
        set_header(&mut map, &name, value)?;
    }
    let asked = request
        .options
        .extra
        .get("headers")
        .and_then(Value::as_object);
    for (name, value) in asked.into_iter().flatten() {
        set_header(&mut map, name, value.as_str().map(str::to_owned))?;
    }
    Ok(map)
}

/// Sets or removes a header. A value that no header can hold fails without being shown: it may be a key.
fn set_header(map: &mut HeaderMap, name: &str, value: Option<String>) -> Result<(), Stop> {
    let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
        return Err(Stop::text(format!(
            "`{name}` is no header name; check models.json"
        )));
    };
    match value {
        None => {
            map.remove(header);
        }
        Some(value) => {
            let Ok(mut value) = HeaderValue::from_str(value.trim()) else {
                return Err(Stop::text(format!(
                    "the value for the header `{header}` holds characters a header cannot carry (a line break in a key?)"
                )));
            };
            value.set_sensitive(!matches!(
                header.as_str(),
                "content-type" | "accept" | "anthropic-version"
            ));
            map.insert(header, value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_do_not_show_their_secrets() {
        let mut map = HeaderMap::new();
        for name in ["authorization", "x-api-key", "x-goog-api-key", "x-whatever"] {
            set_header(&mut map, name, Some("sk-test-SECRET123".to_owned())).ok();
        }
        assert_eq!(map.len(), 4);
        assert!(!format!("{map:?}").contains("SECRET123"), "{map:?}");
        let broken = set_header(&mut map, "x-api-key", Some("sk-\nSECRET123".to_owned()));
        let Err(Stop::Failed { text, .. }) = broken else {
            panic!("a line break went into a header");
        };
        assert!(
            text.contains("x-api-key") && !text.contains("SECRET123"),
            "{text}"
        );
    }
}
