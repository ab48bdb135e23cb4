//! Encrypted connections to the database.

use std::fs;
use std::path::PathBuf;

use gristmill_tests::{TestHost, guests};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;

use crate::hosts::until_active;
use crate::mistakes::refusal;
use crate::postgres::Server;
use crate::tcp::PASSWORD;

/// A server whose certificate an authority has signed for `name`, and a directory with the files of
/// this authority (`ca.pem`) and of another one (`other.pem`).
fn server(name: &str) -> Option<(Server, tempfile::TempDir)> {
    let files = tempfile::tempdir().unwrap();
    let (issuer, authority) = authority();
    fs::write(files.path().join("ca.pem"), authority).unwrap();
    fs::write(files.path().join("other.pem"), self::authority().1).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();
    fs::write(files.path().join("server.pem"), certificate.pem()).unwrap();
    let server = Server::start_on_tcp(|data| {
        fs::write(data.join("server.crt"), certificate.pem()).unwrap();
        let file = data.join("server.key");
        fs::write(&file, key.serialize_pem()).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(file, private).unwrap();
        // Connections by TCP must be encrypted.
        let hba = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(data.join("pg_hba.conf"), hba).unwrap();
        "ssl = on\n".to_owned()
    })?;
    Some((server, files))
}

/// An authority, with its certificate as PEM.
fn authority() -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), certificate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_the_database_are_encrypted_and_its_certificate_is_checked() {
    let Some((server, files)) = server("127.0.0.1") else { return };
    let database = server.database();
    let file = |name: &str| files.path().join(name).display().to_string();
    let url = |parameters: &str| database.url_by_tcp(PASSWORD, parameters);
    let key = database.key_file();
    let refused = |parameters: &str| {
        refusal(&["--database", &url(parameters), "--secrets-key", key.to_str().unwrap()])
    };
    let verified = format!("?sslmode=verify-full&sslrootcert={}", file("ca.pem"));
    let mut host = None;
    for parameters in [
        "?sslmode=require".to_owned(),
        // The default encrypts if the server can.
        String::new(),
        format!("?sslmode=require&sslrootcert={}", file("ca.pem")),
        // The certificate itself instead of an authority.
        format!("?sslmode=verify-full&sslrootcert={}", file("server.pem")),
        verified,
    ] {
        let arguments = ["--database", &url(&parameters), "--secrets-key", key.to_str().unwrap()];
        host = Some(match host.take() {
            None => TestHost::start_with(&arguments),
            Some(host) => {
                let mut host: TestHost = host;
                host.start_again_with(&arguments);
                host
            }
        });
        let open = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
             WHERE application_name = 'gristmill' AND ssl";
        let all = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gristmill'";
        let (encrypted, all) = (database.sql(open), database.sql(all));
        assert!(encrypted == all && all != "0", "{parameters}: {encrypted} of {all}");
    }
    let host = host.unwrap();
    // The connection of the host before may not have ended yet.
    until_active(&host).await;
    host.deploy(&guests::playground(), "play", json!({ "workersMax": 1 })).await;
    let document = host.client().finish("play", json!({ "op": "echo", "value": 7 })).await;
    assert_eq!(document["output"], json!({ "echo": 7 }));
    let shown = host.ready()["database"].as_str().unwrap();
    assert!(!shown.contains("ssl") && !shown.contains(PASSWORD), "{shown}");
    drop(host);

    let said = refused("?sslmode=disable");
    assert!(said.contains("no encryption"), "{said}");
    let said = refused(&format!("?sslmode=verify-full&sslrootcert={}", file("other.pem")));
    assert!(said.contains("invalid peer certificate"), "{said}");
    drop(database);
}

/// The name counts with `verify-full` only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_of_the_database_server_is_checked() {
    let Some((server, files)) = server("db.example") else { return };
    let database = server.database();
    let key = database.key_file();
    let with = |mode: &str, name: &str| {
        let file: PathBuf = files.path().join(name);
        let parameters = format!("?sslmode={mode}&sslrootcert={}", file.display());
        let url = database.url_by_tcp(PASSWORD, &parameters);
        ["--database".to_owned(), url, "--secrets-key".to_owned(), key.display().to_string()]
    };
    for name in ["ca.pem", "server.pem"] {
        let arguments = with("verify-full", name);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let said = refusal(&arguments);
        assert!(said.contains("not valid for name"), "{name}: {said}");
    }
    drop(TestHost::start_with(&with("verify-ca", "ca.pem")));
}
