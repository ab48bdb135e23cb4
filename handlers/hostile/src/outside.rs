//! Searches for objects outside the sandbox. Each function returns its findings: none, if the host
//! keeps its promise.

use std::fs;

use gristmill_sdk::Context;
use wasip2::cli::environment;
use wasip2::filesystem::preopens::get_directories;
use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup::resolve_addresses;
use wasip2::sockets::network::IpAddressFamily;
use wasip2::sockets::tcp_create_socket::create_tcp_socket;
use wasip2::sockets::udp_create_socket::create_udp_socket;

/// Files that every machine has, the host's own files, and paths around a directory.
const PATHS: [&str; 7] = [
    ".",
    "/",
    "/etc/passwd",
    "/proc/self/environ",
    "admin.key",
    "../../../../../../etc/passwd",
    "./a/../../etc/passwd",
];

pub fn sockets() -> Vec<String> {
    let mut opened = Vec::new();
    for family in [IpAddressFamily::Ipv4, IpAddressFamily::Ipv6] {
        opened.extend(create_tcp_socket(family).map(|socket| format!("{socket:?}")));
        opened.extend(create_udp_socket(family).map(|socket| format!("{socket:?}")));
    }
    for name in ["localhost", "127.0.0.1"] {
        opened.extend(resolve_addresses(&instance_network(), name).map(|_| name.to_owned()));
    }
    opened
}

pub fn files() -> Vec<String> {
    let mut found: Vec<_> = get_directories().into_iter().map(|(_, path)| path).collect();
    for path in PATHS {
        found.extend(fs::metadata(path).map(|_| format!("metadata of {path}")));
        found.extend(fs::read(path).map(|_| format!("read {path}")));
        found.extend(fs::read_dir(path).map(|_| format!("listed {path}")));
        found.extend(fs::write(path, "x").map(|()| format!("wrote {path}")));
        found.extend(fs::create_dir(path).map(|()| format!("made {path}")));
        found.extend(fs::hard_link("/etc/passwd", path).map(|()| format!("linked {path}")));
        found.extend(fs::rename("/etc/passwd", path).map(|()| format!("renamed to {path}")));
        found.extend(fs::remove_file(path).map(|()| format!("removed {path}")));
    }
    found.extend(std::env::current_dir().and_then(fs::read_link).map(|_| "a link".to_owned()));
    found
}

pub fn snoop(ctx: &Context) -> Vec<String> {
    let environment = environment::get_environment();
    let mut found: Vec<_> =
        environment.iter().map(|(name, text)| format!("{name}={text}")).collect();
    found.extend(environment::get_arguments());
    found.extend(environment::initial_cwd());
    found.extend(get_directories().into_iter().map(|(_, path)| path));
    found.extend(ctx.s3_config().map(|s3| s3.access_secret));
    found
}
