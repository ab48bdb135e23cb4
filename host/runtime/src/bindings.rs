//! The handler's world as Rust: generated from `wit/`, the only copy of the contract.
//!
//! Each call of an import is a span of `tracing`, below this module's target: see
//! [`HOST_CALLS`](crate::HOST_CALLS).

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "handler",
    imports: {
        "gristmill:handler/output.emit": async | tracing | verbose_tracing,
        "gristmill:handler/http.send": async | tracing | verbose_tracing,
        "gristmill:handler/endpoints.submit": async | tracing | verbose_tracing,
        "gristmill:handler/endpoints.call": async | tracing | verbose_tracing,
        default: tracing | verbose_tracing,
    },
    exports: { default: async },
});
