//! Bindings to the proxy-wasm ABI 0.2.1 and to the two clocks of WASI.
#![expect(unsafe_code, reason = "calls into the host")]

use std::ptr;

/// What the host said. Any number it may come up with is a value of this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(u32);

impl Status {
    /// There is no such thing.
    pub(crate) const NOT_FOUND: Self = Self(1);
    /// A queue has nothing more.
    pub(crate) const EMPTY: Self = Self(7);
    /// Somebody else changed the value.
    pub(crate) const CAS_MISMATCH: Self = Self(8);

    fn check(self) -> Result<(), Self> {
        if self.0 == 0 { Ok(()) } else { Err(self) }
    }
}

/// Bytes the host can show.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Buffer {
    RequestBody = 0,
    ResponseBody = 1,
    PluginConfiguration = 7,
}

/// Headers the host can show and change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HeaderMap {
    Request = 0,
    Response = 2,
}

mod sys {
    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        pub(super) fn proxy_get_header_map_pairs(
            map: u32,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_get_header_map_value(
            map: u32,
            key: *const u8,
            key_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_add_header_map_value(
            map: u32,
            key: *const u8,
            key_size: usize,
            value: *const u8,
            value_size: usize,
        ) -> u32;
        pub(super) fn proxy_replace_header_map_value(
            map: u32,
            key: *const u8,
            key_size: usize,
            value: *const u8,
            value_size: usize,
        ) -> u32;
        pub(super) fn proxy_remove_header_map_value(
            map: u32,
            key: *const u8,
            key_size: usize,
        ) -> u32;
        pub(super) fn proxy_get_buffer_bytes(
            buffer: u32,
            start: usize,
            max: usize,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_continue_stream(stream: u32) -> u32;
        pub(super) fn proxy_send_local_response(
            status: u32,
            details: *const u8,
            details_size: usize,
            body: *const u8,
            body_size: usize,
            headers: *const u8,
            headers_size: usize,
            grpc_status: i32,
        ) -> u32;
        pub(super) fn proxy_set_effective_context(context: u32) -> u32;
        pub(super) fn proxy_get_property(
            path: *const u8,
            path_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_set_property(
            path: *const u8,
            path_size: usize,
            value: *const u8,
            value_size: usize,
        ) -> u32;
        pub(super) fn proxy_get_shared_data(
            key: *const u8,
            key_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
            cas: *mut u32,
        ) -> u32;
        pub(super) fn proxy_set_shared_data(
            key: *const u8,
            key_size: usize,
            value: *const u8,
            value_size: usize,
            cas: u32,
        ) -> u32;
        pub(super) fn proxy_register_shared_queue(
            name: *const u8,
            name_size: usize,
            id: *mut u32,
        ) -> u32;
        pub(super) fn proxy_resolve_shared_queue(
            vm: *const u8,
            vm_size: usize,
            name: *const u8,
            name_size: usize,
            id: *mut u32,
        ) -> u32;
        pub(super) fn proxy_dequeue_shared_queue(
            id: u32,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_enqueue_shared_queue(
            id: u32,
            value: *const u8,
            value_size: usize,
        ) -> u32;
        pub(super) fn proxy_define_metric(
            kind: u32,
            name: *const u8,
            name_size: usize,
            id: *mut u32,
        ) -> u32;
        pub(super) fn proxy_increment_metric(id: u32, by: i64) -> u32;
        pub(super) fn proxy_record_metric(id: u32, value: u64) -> u32;
        pub(super) fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    }

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        pub(super) fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
    }
}

/// Bytes that the host allocated in this instance's memory and handed over.
fn taken(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Result<Vec<u8>, Status> {
    let mut data: *mut u8 = ptr::null_mut();
    let mut size = 0_usize;
    Status(call(&raw mut data, &raw mut size)).check()?;
    if data.is_null() || size == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the host got `data` from this module's allocator (`proxy_on_memory_allocate` makes a
    // vector with a capacity of exactly `size` bytes), wrote `size` bytes, and does not use it again.
    Ok(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(data, size)) }.into_vec())
}

/// All headers of a map, read in one call.
#[derive(Default)]
pub(crate) struct Headers(Vec<u8>);

impl Headers {
    /// Name and value of each header, as long as the host's encoding holds.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let word = |at: usize| {
            let bytes = self.0.get(at..)?.first_chunk::<4>()?;
            usize::try_from(u32::from_le_bytes(*bytes)).ok()
        };
        let count = word(0).unwrap_or(0);
        let mut sizes = 4_usize;
        let mut data = count.saturating_mul(8).saturating_add(4);
        (0..count).map_while(move |_| {
            let name_end = data.checked_add(word(sizes)?)?;
            let value = name_end.checked_add(1)?;
            let value_end = value.checked_add(word(sizes.checked_add(4)?)?)?;
            let pair = (self.0.get(data..name_end)?, self.0.get(value..value_end)?);
            sizes = sizes.checked_add(8)?;
            data = value_end.checked_add(1)?;
            Some(pair)
        })
    }
}

pub(crate) fn headers(map: HeaderMap) -> Result<Headers, Status> {
    // SAFETY: see `taken`.
    taken(|data, size| unsafe { sys::proxy_get_header_map_pairs(map as u32, data, size) })
        .map(Headers)
}

pub(crate) fn header(map: HeaderMap, name: &str) -> Option<Vec<u8>> {
    // SAFETY: `name` outlives the call; see `taken`.
    taken(|data, size| unsafe {
        sys::proxy_get_header_map_value(map as u32, name.as_ptr(), name.len(), data, size)
    })
    .ok()
}

pub(crate) fn add_header(map: HeaderMap, name: &str, value: &str) -> Result<(), Status> {
    write_header(sys::proxy_add_header_map_value, map, name, value)
}

pub(crate) fn replace_header(map: HeaderMap, name: &str, value: &str) -> Result<(), Status> {
    write_header(sys::proxy_replace_header_map_value, map, name, value)
}

fn write_header(
    call: unsafe extern "C" fn(u32, *const u8, usize, *const u8, usize) -> u32,
    map: HeaderMap,
    name: &str,
    value: &str,
) -> Result<(), Status> {
    // SAFETY: `name` and `value` outlive the call.
    Status(unsafe { call(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
        .check()
}

pub(crate) fn remove_header(map: HeaderMap, name: &[u8]) -> Result<(), Status> {
    // SAFETY: `name` outlives the call.
    Status(unsafe { sys::proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) })
        .check()
}

/// The first `max` bytes of a buffer.
pub(crate) fn buffer(buffer: Buffer, max: usize) -> Result<Vec<u8>, Status> {
    buffer_from(buffer, 0, max)
}

/// At most `max` bytes of a buffer, from this place on.
pub(crate) fn buffer_from(buffer: Buffer, from: usize, max: usize) -> Result<Vec<u8>, Status> {
    // SAFETY: see `taken`.
    taken(|data, size| unsafe { sys::proxy_get_buffer_bytes(buffer as u32, from, max, data, size) })
}

pub(crate) fn continue_request() -> Result<(), Status> {
    // SAFETY: takes a number.
    Status(unsafe { sys::proxy_continue_stream(0) }).check()
}

pub(crate) fn send_local_response(
    status: u16,
    details: &str,
    headers: &[(&[u8], &[u8])],
    body: &[u8],
) -> Result<(), Status> {
    let headers = pairs(headers);
    // SAFETY: all slices outlive the call.
    Status(unsafe {
        sys::proxy_send_local_response(
            status.into(),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            -1,
        )
    })
    .check()
}

/// Headers in the ABI's encoding: count, sizes, then names and values with a zero behind each.
fn pairs(headers: &[(&[u8], &[u8])]) -> Vec<u8> {
    let size = headers.iter().fold(4_usize, |sum, (name, value)| {
        sum.saturating_add(name.len()).saturating_add(value.len()).saturating_add(10)
    });
    let mut out = Vec::with_capacity(size);
    let word = |out: &mut Vec<u8>, len: usize| {
        out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    };
    word(&mut out, headers.len());
    for (name, value) in headers {
        word(&mut out, name.len());
        word(&mut out, value.len());
    }
    for (name, value) in headers {
        for text in [name, value] {
            out.extend_from_slice(text);
            out.push(0);
        }
    }
    out
}

pub(crate) fn set_effective_context(context: u32) -> Result<(), Status> {
    // SAFETY: takes a number.
    Status(unsafe { sys::proxy_set_effective_context(context) }).check()
}

fn path(segments: &[&str]) -> Vec<u8> {
    segments.join("\0").into_bytes()
}

pub(crate) fn property(segments: &[&str]) -> Option<Vec<u8>> {
    let path = path(segments);
    // SAFETY: `path` outlives the call; see `taken`.
    taken(|data, size| unsafe { sys::proxy_get_property(path.as_ptr(), path.len(), data, size) })
        .ok()
}

pub(crate) fn set_property(name: &str, value: &[u8]) -> Result<(), Status> {
    // SAFETY: `name` and `value` outlive the call.
    Status(unsafe {
        sys::proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len())
    })
    .check()
}

/// A shared value and its version.
pub(super) fn shared_data(key: &str) -> Result<(Vec<u8>, u32), Status> {
    let mut cas = 0_u32;
    let at = &raw mut cas;
    // SAFETY: `key` and `cas` outlive the call; see `taken`.
    let bytes = taken(|data, size| unsafe {
        sys::proxy_get_shared_data(key.as_ptr(), key.len(), data, size, at)
    })?;
    Ok((bytes, cas))
}

pub(super) fn set_shared_data(key: &str, value: &[u8], cas: u32) -> Result<(), Status> {
    // SAFETY: `key` and `value` outlive the call.
    Status(unsafe {
        sys::proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas)
    })
    .check()
}

pub(super) fn register_queue(name: &str) -> Result<u32, Status> {
    let mut id = 0_u32;
    // SAFETY: `name` and `id` outlive the call.
    Status(unsafe { sys::proxy_register_shared_queue(name.as_ptr(), name.len(), &raw mut id) })
        .check()?;
    Ok(id)
}

pub(super) fn resolve_queue(vm: &str, name: &str) -> Result<u32, Status> {
    let mut id = 0_u32;
    // SAFETY: `vm`, `name` and `id` outlive the call.
    Status(unsafe {
        sys::proxy_resolve_shared_queue(
            vm.as_ptr(),
            vm.len(),
            name.as_ptr(),
            name.len(),
            &raw mut id,
        )
    })
    .check()?;
    Ok(id)
}

pub(super) fn enqueue(id: u32, value: &[u8]) -> Result<(), Status> {
    // SAFETY: `value` outlives the call.
    Status(unsafe { sys::proxy_enqueue_shared_queue(id, value.as_ptr(), value.len()) }).check()
}

/// The next message of a queue. `None`: there is none.
pub(crate) fn dequeue(id: u32) -> Result<Option<Vec<u8>>, Status> {
    // SAFETY: see `taken`.
    match taken(|data, size| unsafe { sys::proxy_dequeue_shared_queue(id, data, size) }) {
        Ok(message) => Ok(Some(message)),
        Err(Status::EMPTY | Status::NOT_FOUND) => Ok(None),
        Err(status) => Err(status),
    }
}

pub(super) fn define_metric(kind: u32, name: &str) -> Result<u32, Status> {
    let mut id = 0_u32;
    // SAFETY: `name` and `id` outlive the call.
    Status(unsafe { sys::proxy_define_metric(kind, name.as_ptr(), name.len(), &raw mut id) })
        .check()?;
    Ok(id)
}

pub(super) fn increment_metric(id: u32, by: i64) -> Result<(), Status> {
    // SAFETY: takes numbers.
    Status(unsafe { sys::proxy_increment_metric(id, by) }).check()
}

pub(super) fn record_metric(id: u32, value: u64) -> Result<(), Status> {
    // SAFETY: takes numbers.
    Status(unsafe { sys::proxy_record_metric(id, value) }).check()
}

pub(crate) fn set_tick_period(millis: u32) -> Result<(), Status> {
    // SAFETY: takes a number.
    Status(unsafe { sys::proxy_set_tick_period_milliseconds(millis) }).check()
}

fn clock(id: u32) -> u64 {
    let mut time = 0_u64;
    // SAFETY: `time` outlives the call.
    let errno = unsafe { sys::clock_time_get(id, 0, &raw mut time) };
    if errno == 0 { time } else { 0 }
}

/// Nanoseconds since 1970, UTC.
pub(crate) fn wall_nanos() -> u64 {
    clock(0)
}

/// Nanoseconds on the host's monotonic clock, the same for all workers of the process.
pub(crate) fn monotonic_nanos() -> u64 {
    clock(1)
}
