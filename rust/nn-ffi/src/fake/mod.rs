//! A library of Rust functions behind the table of pointers, for tests of this crate that Miri can run: what is freed is
//! really freed, so that a use after it, a leak or a write outside is found.

mod tests;

use std::alloc::{Layout as Memory, alloc, dealloc};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::OnceLock;

use nn_cuda::{Address, Functions, Library, nncuda_ctx, nncuda_event, nncuda_graph, nncuda_stream};

/// What a context handle of this library points to.
#[derive(Default)]
struct State {
    memory: HashMap<usize, (*mut u8, Memory)>,
    capture: Option<Vec<Call>>,
    handles: usize,
    given: Vec<Call>,
}

/// A kernel call or a copy that is made later.
type Call = Box<dyn Fn()>;

struct Graph(Vec<Call>);

/// The context's state.
///
/// # Safety
///
/// `ctx` came from `create` and was not destroyed.
unsafe fn state<'a>(ctx: *mut nncuda_ctx) -> &'a mut State {
    // SAFETY: the caller vouches for it; calls on one context come one at a time.
    unsafe { &mut *ctx.cast::<State>() }
}

extern "C" fn create(device: i32, _index: i32, ctx: *mut *mut nncuda_ctx) -> i32 {
    if device != nn_cuda::NNCUDA_DEVICE_CPU {
        return nn_cuda::NNCUDA_ERROR_NO_DEVICE;
    }
    // SAFETY: the caller lets it be written.
    unsafe { *ctx = Box::into_raw(Box::<State>::default()).cast() };
    0
}

extern "C" fn destroy(ctx: *mut nncuda_ctx) -> i32 {
    // SAFETY: it came from `create`, and nobody uses it any more.
    let state = unsafe { Box::from_raw(ctx.cast::<State>()) };
    for (memory, layout) in state.memory.values() {
        // SAFETY: it came from `alloc` with this layout, and was not freed.
        unsafe { dealloc(*memory, *layout) };
    }
    0
}

extern "C" fn synchronize(ctx: *mut nncuda_ctx) -> i32 {
    // SAFETY: the context lives.
    let given = std::mem::take(&mut unsafe { state(ctx) }.given);
    given.iter().for_each(|call| call());
    0
}

extern "C" fn stream_synchronize(ctx: *mut nncuda_ctx, _stream: *mut nncuda_stream) -> i32 {
    synchronize(ctx)
}

extern "C" fn sentence(_ctx: *mut nncuda_ctx) -> *const c_char {
    c"".as_ptr()
}

extern "C" fn meaning(_status: i32) -> *const c_char {
    c"what a status means".as_ptr()
}

extern "C" fn describe(_device: i32, _index: i32, text: *mut c_char, _capacity: i64) -> i32 {
    // SAFETY: there is room for one.
    unsafe { *text = 0 };
    nn_cuda::NNCUDA_ERROR_NO_DEVICE
}

extern "C" fn malloc(ctx: *mut nncuda_ctx, bytes: i64, pointer: *mut *mut c_void) -> i32 {
    let Ok(layout) = Memory::from_size_align(usize::try_from(bytes).unwrap_or(usize::MAX), 256) else {
        return nn_cuda::NNCUDA_ERROR_OUT_OF_MEMORY;
    };
    if layout.size() == 0 {
        // SAFETY: the caller lets it be written.
        unsafe { *pointer = ptr::null_mut() };
        return 0;
    }
    if layout.size() > 1 << 20 {
        return nn_cuda::NNCUDA_ERROR_OUT_OF_MEMORY;
    }
    // SAFETY: the layout has a size, and the caller lets the pointer be written; the context lives.
    unsafe {
        let memory = alloc(layout);
        ptr::write_bytes(memory, 0xAA, layout.size());
        state(ctx).memory.insert(memory.addr(), (memory, layout));
        *pointer = memory.cast();
    }
    0
}

extern "C" fn free(ctx: *mut nncuda_ctx, pointer: *mut c_void) -> i32 {
    // SAFETY: the context lives.
    let state = unsafe { state(ctx) };
    if state.capture.is_some() {
        return nn_cuda::NNCUDA_ERROR_CAPTURING;
    }
    let Some((memory, layout)) = state.memory.remove(&pointer.addr()) else {
        return nn_cuda::NNCUDA_ERROR_WRONG_DEVICE;
    };
    // SAFETY: it came from `alloc` with this layout, and is forgotten.
    unsafe { dealloc(memory, layout) };
    0
}

extern "C" fn memset(_ctx: *mut nncuda_ctx, pointer: *mut c_void, value: i32, bytes: i64) -> i32 {
    // SAFETY: the caller vouches for the bytes.
    unsafe { ptr::write_bytes(pointer.cast::<u8>(), value as u8, bytes as usize) };
    0
}

extern "C" fn memcpy(_ctx: *mut nncuda_ctx, to: *mut c_void, from: *const c_void, bytes: i64, _kind: i32) -> i32 {
    // SAFETY: the caller vouches for both sides.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), bytes as usize) };
    0
}

extern "C" fn memcpy_async(
    ctx: *mut nncuda_ctx,
    _stream: *mut nncuda_stream,
    to: *mut c_void,
    from: *const c_void,
    bytes: i64,
    kind: i32,
) -> i32 {
    // SAFETY: the context lives. The copy is made as late as it may be: when the stream is waited for.
    unsafe { state(ctx) }.given.push(Box::new(move || {
        memcpy(ctx, to, from, bytes, kind);
    }));
    0
}

extern "C" fn stream_create(ctx: *mut nncuda_ctx, stream: *mut *mut nncuda_stream) -> i32 {
    // SAFETY: the context lives and the caller lets the pointer be written.
    unsafe {
        if state(ctx).capture.is_some() {
            return nn_cuda::NNCUDA_ERROR_CAPTURING;
        }
        state(ctx).handles += 1;
        *stream = Box::into_raw(Box::new(0_u8)).cast();
    }
    0
}

extern "C" fn stream_destroy(ctx: *mut nncuda_ctx, stream: *mut nncuda_stream) -> i32 {
    // SAFETY: the context lives, and the stream came from `stream_create`.
    unsafe {
        if state(ctx).capture.is_some() {
            return nn_cuda::NNCUDA_ERROR_CAPTURING;
        }
        state(ctx).handles -= 1;
        drop(Box::from_raw(stream.cast::<u8>()));
    }
    0
}

extern "C" fn event_create(ctx: *mut nncuda_ctx, event: *mut *mut nncuda_event) -> i32 {
    stream_create(ctx, event.cast())
}

extern "C" fn event_destroy(ctx: *mut nncuda_ctx, event: *mut nncuda_event) -> i32 {
    stream_destroy(ctx, event.cast())
}

extern "C" fn order(_ctx: *mut nncuda_ctx, _stream: *mut nncuda_stream, _event: *mut nncuda_event) -> i32 {
    0
}

extern "C" fn graph_begin(ctx: *mut nncuda_ctx) -> i32 {
    // SAFETY: the context lives.
    let capture = &mut unsafe { state(ctx) }.capture;
    if capture.is_some() {
        return nn_cuda::NNCUDA_ERROR_CAPTURING;
    }
    *capture = Some(Vec::new());
    0
}

extern "C" fn graph_end(ctx: *mut nncuda_ctx, graph: *mut *mut nncuda_graph) -> i32 {
    // SAFETY: the context lives.
    let Some(calls) = unsafe { state(ctx) }.capture.take() else { return nn_cuda::NNCUDA_ERROR_STATE };
    // SAFETY: the caller lets it be written.
    unsafe { *graph = Box::into_raw(Box::new(Graph(calls))).cast() };
    0
}

extern "C" fn graph_launch(_ctx: *mut nncuda_ctx, graph: *mut nncuda_graph) -> i32 {
    // SAFETY: it came from `graph_end` and was not destroyed.
    unsafe { &*graph.cast::<Graph>() }.0.iter().for_each(|call| call());
    0
}

extern "C" fn graph_size(_ctx: *mut nncuda_ctx, graph: *mut nncuda_graph, nodes: *mut i64) -> i32 {
    // SAFETY: it came from `graph_end` and was not destroyed; the caller lets the number be written.
    unsafe { *nodes = (*graph.cast::<Graph>()).0.len() as i64 };
    0
}

extern "C" fn graph_destroy(_ctx: *mut nncuda_ctx, graph: *mut nncuda_graph) -> i32 {
    // SAFETY: it came from `graph_end`, and nobody uses it any more.
    drop(unsafe { Box::from_raw(graph.cast::<Graph>()) });
    0
}

extern "C" fn add(ctx: *mut nncuda_ctx, a: *const c_void, b: *const c_void, y: *mut c_void, n: i64, dtype: i32) -> i32 {
    if dtype != nn_cuda::NNCUDA_F32 {
        return nn_cuda::NNCUDA_ERROR_INVALID_DTYPE;
    }
    let (a, b, y) = (a.cast::<f32>(), b.cast::<f32>(), y.cast::<f32>());
    let call = move || {
        for index in 0..n as usize {
            // SAFETY: the caller vouches for n elements behind each pointer.
            unsafe { *y.add(index) = *a.add(index) + *b.add(index) };
        }
    };
    // SAFETY: the context lives.
    match &mut unsafe { state(ctx) }.capture {
        Some(calls) => calls.push(Box::new(call)),
        None => call(),
    }
    0
}

/// Where the table needs an address for what the tests do not call.
extern "C" fn absent() -> i32 {
    nn_cuda::NNCUDA_ERROR_UNSUPPORTED
}

fn address(name: &CStr) -> Address {
    match name.to_str().expect("names are ASCII") {
        "nncuda_ctx_create" => create as Address,
        "nncuda_ctx_destroy" => destroy as Address,
        "nncuda_ctx_synchronize" => synchronize as Address,
        "nncuda_last_error" => sentence as Address,
        "nncuda_status_string" => meaning as Address,
        "nncuda_device_describe" => describe as Address,
        "nncuda_malloc" | "nncuda_malloc_host" => malloc as Address,
        "nncuda_free" | "nncuda_free_host" => free as Address,
        "nncuda_memset" => memset as Address,
        "nncuda_memcpy" => memcpy as Address,
        "nncuda_memcpy_async" => memcpy_async as Address,
        "nncuda_stream_create" => stream_create as Address,
        "nncuda_stream_destroy" => stream_destroy as Address,
        "nncuda_stream_synchronize" => stream_synchronize as Address,
        "nncuda_event_create" => event_create as Address,
        "nncuda_event_destroy" => event_destroy as Address,
        "nncuda_event_record" | "nncuda_stream_wait_event" => order as Address,
        "nncuda_graph_begin" => graph_begin as Address,
        "nncuda_graph_end" => graph_end as Address,
        "nncuda_graph_launch" => graph_launch as Address,
        "nncuda_graph_size" => graph_size as Address,
        "nncuda_graph_destroy" => graph_destroy as Address,
        "cuda_add" => add as Address,
        _ => absent as Address,
    }
}

/// The stand-in.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // SAFETY: the functions above have the types of their names, and do what the tests need of what bindings.h says;
        // the tests call no other.
        unsafe {
            let functions = Functions::resolve(|name| Ok::<_, ()>(address(name))).expect("every name has an address");
            Library::from_functions(functions, "fake")
        }
    })
}
