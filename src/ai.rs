//! Models: messages, the streaming protocol, providers, credentials and cost.
//!
//! Entry points: [`Message`], [`Model`], [`Provider`]. Nothing here knows of agents, sessions, files of a project or
//! the editor. Formats follow the Pi 1.6.0 session and RPC formats, so that both programs read each other's files.

pub mod auth;
pub mod catalogue;
pub mod choice;
pub mod config_value;
pub mod cost;
mod credentials;
pub mod http;
pub mod ids;
pub mod json;
pub mod limits;
pub mod local;
pub mod message;
pub mod model;
pub mod models_json;
pub mod overflow;
pub mod patterns;
pub mod provider;
pub mod providers;
pub mod proxy;
pub mod registry;
pub mod retry;
pub mod schema;
pub mod secrets;
pub mod sse;
pub mod tap;
pub mod transcript;

pub use message::{
    AssistantMessage, BashExecutionMessage, Block, BranchSummaryMessage, CompactionSummaryMessage,
    Content, Cost, CustomMessage, Message, StopReason, SystemMessage, ToolDeclaration,
    ToolResultMessage, Usage, UserMessage,
};
pub use model::{Model, ThinkingLevel};
pub use provider::{EventStream, Provider, Request, RequestOptions, StreamEvent};
pub use registry::ModelRegistry;
