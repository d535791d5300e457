//! A minimal extension module for CPython: `PyInit_<leaf>` and one string, `value`.
//!
//! Named after PyO3, whose features decide the ABI. Only functions of the stable ABI are used.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// `PyModuleDef` of CPython 3.10 to 3.13, on a 64-bit build with a GIL.
#[repr(C)]
pub struct ModuleDef {
    refcnt: isize,
    ob_type: *mut c_void,
    m_init: *mut c_void,
    m_index: isize,
    m_copy: *mut c_void,
    m_name: *const c_char,
    m_doc: *const c_char,
    m_size: isize,
    m_methods: *mut c_void,
    m_slots: *mut c_void,
    m_traverse: *mut c_void,
    m_clear: *mut c_void,
    m_free: *mut c_void,
}

unsafe extern "C" {
    fn PyModule_Create2(def: *mut ModuleDef, api_version: c_int) -> *mut c_void;
    fn PyModule_AddStringConstant(module: *mut c_void, name: *const c_char, value: *const c_char) -> c_int;
}

/// Make a module named `name` with one attribute, `value`. Both strings end in NUL.
pub fn create(name: &'static str, value: &str) -> *mut c_void {
    let value = std::ffi::CString::new(value).expect("a value without NUL");
    let def = Box::leak(Box::new(ModuleDef {
        refcnt: 1,
        ob_type: ptr::null_mut(),
        m_init: ptr::null_mut(),
        m_index: 0,
        m_copy: ptr::null_mut(),
        m_name: name.as_ptr().cast(),
        m_doc: ptr::null(),
        m_size: -1,
        m_methods: ptr::null_mut(),
        m_slots: ptr::null_mut(),
        m_traverse: ptr::null_mut(),
        m_clear: ptr::null_mut(),
        m_free: ptr::null_mut(),
    }));
    // SAFETY: called from `PyInit_*`, with the GIL held; the definition is never freed, as CPython requires.
    unsafe {
        let module = PyModule_Create2(def, 3);
        if !module.is_null() {
            PyModule_AddStringConstant(module, c"value".as_ptr(), value.as_ptr());
        }
        module
    }
}

/// Define `PyInit_<leaf>` for a module whose `value` is the given expression.
#[macro_export]
macro_rules! module {
    ($init:ident, $name:literal, $value:expr) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $init() -> *mut std::ffi::c_void {
            $crate::create(concat!($name, "\0"), &$value)
        }
    };
}
