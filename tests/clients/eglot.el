;;; Eglot as a client: `emacs -Q --batch -l eglot.el -- unix SOCKET` or `-- stdio PROGRAM ARG...`.
;; Attaches, runs a job, starts and stops another one, and leaves; prints what came of it, a line each.

(setq load-prefer-newer t eglot-events-buffer-size 0 eglot-sync-connect 20 eglot-connect-timeout 20)
(dolist (dir '("/usr/share/emacs/site-lisp/elpa" "/usr/share/emacs/site-lisp/elpa-src"))
  (when (file-directory-p dir)
    (dolist (sub (directory-files dir t "\\`[a-z].*-[0-9.]+\\'"))
      (add-to-list 'load-path sub))))
(require 'eglot)

(defun try-say (form &rest values)
  (princ (concat (apply #'format form values) "\n")))

(let* ((given (remove "--" command-line-args-left))
       (words (cdr given))
       (contact (if (equal (car given) "unix")
                    (list :process
                          (lambda ()
                            (make-network-process :name "ostler" :family 'local
                                                  :service (car words) :noquery t
                                                  :coding 'utf-8-emacs-unix)))
                  words))
       (project (cons 'transient default-directory))
       (server (progn
                 (setq command-line-args-left nil)
                 (eglot--connect '(fundamental-mode) project 'eglot-lsp-server contact "text"))))
  (setq server (car (gethash project eglot--servers-by-project)))
  (try-say "server %s" (plist-get (eglot--server-info server) :name))
  (try-say "offers %s" (plist-get (plist-get (eglot--capabilities server) :executeCommandProvider) :commands))
  (let ((result (eglot-execute-command server 'ostler.run ["printf out; printf err >&2; exit 3"])))
    (try-say "run %s %s %s" (plist-get result :exitCode) (plist-get result :stdout) (plist-get result :stderr)))
  (let* ((row (eglot-execute-command server "ostler.start" ["exec sleep 100"]))
         (id (plist-get row :id)))
    (try-say "start %s %s" id (plist-get row :state))
    (let ((summary (eglot-execute-command server "ostler.stop" (vector id))))
      (try-say "stop %s" (plist-get (plist-get (aref (plist-get summary :jobs) 0) :row) :outcome))))
  (condition-case why
      (eglot-execute-command server "ostler.tail" ["t9"])
    (jsonrpc-error (try-say "refused %s %s"
                            (alist-get 'jsonrpc-error-code (cddr why))
                            (alist-get 'jsonrpc-error-message (cddr why)))))
  ;; Without arguments, which it sends as null.
  (let ((table (eglot-execute-command server "ostler.list" nil)))
    (try-say "list %d" (length (plist-get table :jobs))))
  (let ((begun (current-time)))
    (eglot-shutdown server nil 5)
    (try-say "left %s" (< (float-time (time-since begun)) 4))))
