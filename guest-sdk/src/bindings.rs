//! The contract in `wit/handler.wit` as Rust.

/// The world of a handler with an initialisation before its first job.
pub mod with_init {
    wit_bindgen::generate!({
        path: "../wit",
        inline: "
            package gristmill:sdk;
            world with-init { export gristmill:handler/lifecycle@0.1.0; }
        ",
        world: "gristmill:sdk/with-init",
        pub_export_macro: true,
        export_macro_name: "export_init",
    });
}

wit_bindgen::generate!({
    path: "../wit",
    world: "handler",
    pub_export_macro: true,
    export_macro_name: "export_component",
});
