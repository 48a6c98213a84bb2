//! The decoders of the wire APIs without a server: bytes in, a complete message out. For benches.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::ai::message::AssistantMessage;
use crate::ai::model::Model;
use crate::ai::provider::{Partial, Request, RequestOptions};
use crate::ai::providers::assembly::{Assembly, Step};
use crate::ai::providers::{Call, api};
use crate::ai::sse::SseParser;

/// Decodes `body`, handed over in pieces of `piece` bytes, and folds the events as a reader does. Returns the folded
/// message and the number of events; `None` for an API this version does not speak or a body that fails.
pub fn decode(api_name: &str, body: &[u8], piece: usize) -> Option<(AssistantMessage, usize)> {
    let model = Arc::new(Model {
        id: "m".to_owned(),
        api: api_name.to_owned(),
        ..Model::default()
    });
    let request = Request {
        model: Arc::clone(&model),
        messages: Vec::new(),
        options: RequestOptions::default(),
        cancel: CancellationToken::new(),
    };
    let api = api(api_name)?;
    let mut decoder = api.decoder(&Call::new(&request, false));
    let (mut parser, mut out, mut found) =
        (SseParser::default(), Assembly::new(model, 0), Vec::new());
    let (mut partial, mut events) = (Partial::default(), 0);
    out.start();
    let mut step = Step::More;
    'body: for piece in body.chunks(piece.max(1)) {
        parser.push(piece, &mut found).ok()?;
        for event in found.drain(..) {
            step = decoder.event(&event, &mut out);
            while let Some(event) = out.pop() {
                partial.apply(&event);
                events += 1;
            }
            if step != Step::More {
                break 'body;
            }
        }
    }
    if step == Step::More {
        step = decoder.end(&mut out);
    }
    if step != Step::Done {
        return None;
    }
    out.done();
    while let Some(event) = out.pop() {
        partial.apply(&event);
        events += 1;
    }
    Some((partial.message, events))
}
