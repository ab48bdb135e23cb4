//! Exports this program's `fsync` and `fdatasync` to shared libraries, so that their calls count.

fn main() {
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=fsync");
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=fdatasync");
}
