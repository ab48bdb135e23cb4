# Clients that are generated from the OpenAPI document, for scripts that include suites.sh: three generators, each
# with a program that makes the main calls. The one in TypeScript is compiled with `--strict` first.

generated=$(CDPATH='' cd -- "$here/generated" && pwd)

# Generators that are installed already, in the pinned versions, are kept. One of the wheels is a Java runtime.
install_generators() {
  if ! cat "$generated"/*.txt | cmp -s - "$generated/.venv/installed"; then
    rm -rf "$generated/.venv"
    python3 -m venv "$generated/.venv"
    logged generators "$generated/.venv/bin/pip" install -r "$generated/requirements.txt" -c "$generated/constraints.txt"
    cat "$generated"/*.txt >"$generated/.venv/installed"
  fi
  if ! cmp -s "$generated/package-lock.json" "$generated/node_modules/installed"; then
    logged generators npm --prefix "$generated" ci --no-audit --no-fund
    cp "$generated/package-lock.json" "$generated/node_modules/installed"
  fi
}

# generated_clients DOCUMENT URL KEY IMAGE: generates the clients, and runs their programs; IMAGE echoes its input.
generated_clients() (
  set -e
  document=$1
  shift
  python=$generated/.venv/bin/python out=$temp/generated
  mkdir -p "$out"
  "$generated/.venv/bin/openapi-python-client" generate --path "$document" --meta none --output-path "$out/a/gristmill_client"
  PYTHONPATH=$out/a "$python" "$generated/use_openapi_python_client.py" "$@"
  "$generated/.venv/bin/openapi-generator-cli" generate -i "$document" -g python -o "$out/b"
  PYTHONPATH=$out/b "$python" "$generated/use_openapi_generator.py" "$@"
  "$generated/node_modules/.bin/openapi-typescript" "$document" -o "$generated/api.d.ts"
  "$generated/node_modules/.bin/tsc" --project "$generated" --outDir "$generated/.out"
  node "$generated/.out/use.js" "$@"
)
