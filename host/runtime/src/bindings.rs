//! The handler's world as Rust: generated from `wit/`, the one copy of the contract.

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "handler",
    imports: {
        "gristmill:handler/output.emit": async,
        "gristmill:handler/http.send": async,
    },
    exports: { default: async },
});
