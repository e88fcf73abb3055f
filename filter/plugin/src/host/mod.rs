//! The host's functions, with a result instead of a panic.
//!
//! The SDK's own wrappers panic on any status they do not expect, and a panic hangs every held
//! request of the worker. Here every status is a value.

mod ffi;
mod port;

pub(crate) use ffi::{
    Buffer, HeaderMap, add_header, buffer, buffer_from, continue_request, dequeue, header, headers,
    monotonic_nanos, property, remove_header, replace_header, send_local_response,
    set_effective_context, set_property, set_tick_period, wall_nanos,
};
pub(crate) use port::HostPort;
