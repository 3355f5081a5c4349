# Writes the SHA-256 of modules to FILE, a line each as of sha256sum:
#   cmake -D FILE=... -P checksums.cmake MODULE...
set(content)
set(i 0)
while(i LESS CMAKE_ARGC)
  if(CMAKE_ARGV${i} MATCHES "\\.spv$")
    file(SHA256 ${CMAKE_ARGV${i}} sum)
    get_filename_component(name ${CMAKE_ARGV${i}} NAME)
    string(APPEND content "${sum}  ${name}\n")
  endif()
  math(EXPR i "${i} + 1")
endwhile()
file(WRITE ${FILE} "${content}")
