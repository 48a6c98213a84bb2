//! Extensions at every point of a session: each event of the documentation is fired with its fields, in its order, and
//! what handlers answer has its effect. Requests go over HTTP to a scripted server, so that the wire is there to be hooked.

mod change;
pub(crate) mod dialogs;
mod table;
mod world;
