(component
  (import "wasi:io/poll@0.2.0" (instance))
  (core module $m (memory (export "memory") 1) (func (export "f") (result i32) (i32.const 1)))
  (core instance $i (instantiate $m))
  (func $f (result u32) (canon lift (core func $i "f")))
  (export "f" (func $f)))
