//! The contract in `wit/handler.wit` as Rust, and nothing else.

wit_bindgen::generate!({
    path: "../wit",
    world: "handler",
    pub_export_macro: true,
    export_macro_name: "export_component",
});
